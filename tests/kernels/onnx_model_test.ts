import { assertEquals } from "@std/assert";
import onnxProto from "onnx-proto";
import { foldModel, NAMES, scaleModel } from "../../kernels/onnx_model.ts";

const { ModelProto, TensorProto } = onnxProto.onnx;

/** The parts that matter, as an independent reader of ONNX sees them. */
function read(bytes: Uint8Array) {
  const model = ModelProto.decode(bytes);
  assertEquals(ModelProto.verify(model), null);
  const shape = (value: onnxProto.onnx.IValueInfoProto) => {
    const tensor = value.type!.tensorType!;
    assertEquals(tensor.elemType, TensorProto.DataType.FLOAT);
    const [dimension, ...others] = tensor.shape!.dim!;
    assertEquals(others, []);
    return [value.name, dimension!.dimParam || Number(dimension!.dimValue)];
  };
  const graph = model.graph!;
  return {
    ir: Number(model.irVersion),
    opset: model.opsetImport.map(({ domain, version }) => [domain, Number(version)]),
    inputs: graph.input!.map(shape),
    nodes: graph.node!.map(({ opType, input, output }) => [opType, input, output]),
    outputs: graph.output!.map(shape),
    initializers: graph.initializer,
  };
}

for (const count of [1, 2, 3, 4, 8]) {
  Deno.test(`the fold model of ${count} sources adds from left to right`, () => {
    const model = read(foldModel(count));
    const sources = Array.from({ length: count }, (_, i) => NAMES.source(i));
    assertEquals(model.ir, 8);
    assertEquals(model.opset, [["", 18]]);
    assertEquals(model.inputs, [
      [NAMES.before, "before_length"],
      ...sources.map((name) => [name, "length"]),
    ]);
    assertEquals(model.outputs, [[NAMES.sum, "length"]]);
    assertEquals(model.initializers, []);
    let left = NAMES.before;
    for (const [i, node] of model.nodes.entries()) {
      const [op, inputs, outputs] = node as [string, string[], string[]];
      assertEquals([op, inputs], ["Add", [left, sources[i]]]);
      left = outputs[0]!;
    }
    assertEquals(model.nodes.length, count);
    assertEquals(left, NAMES.sum);
  });
}

Deno.test("the scale model multiplies by one value", () => {
  const model = read(scaleModel());
  assertEquals(model.inputs, [[NAMES.value, "length"], [NAMES.factor, 1]]);
  assertEquals(model.nodes, [["Mul", [NAMES.value, NAMES.factor], [NAMES.product]]]);
  assertEquals(model.outputs, [[NAMES.product, "length"]]);
});
