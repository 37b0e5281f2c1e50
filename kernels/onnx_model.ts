/**
 * Writes the ONNX models that ONNX Runtime runs for us: chains of Add for the fold, one Mul for the
 * divide, over f32 vectors of any length.
 *
 * The format is protobuf, messages and field numbers as in ONNX's onnx.proto (ModelProto, GraphProto,
 * NodeProto, ValueInfoProto, TypeProto); only the few fields that these models need are written.
 *
 * @module
 */

/** ONNX's numbers, from onnx.proto: IR version 8 goes with operator set 18. */
const IR_VERSION = 8;
const OPSET = 18;
const ELEMENT_FLOAT = 1;

const WIRE_VARINT = 0;
const WIRE_LENGTH = 2;

type Bytes = Uint8Array<ArrayBuffer>;

const encoder = new TextEncoder();

function join(parts: readonly Uint8Array[]): Bytes {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** Base-128, lowest seven bits first, the top bit set on all bytes but the last. */
function varint(value: number): Bytes {
  const bytes: number[] = [];
  let rest = value;
  while (rest > 127) {
    bytes.push((rest & 127) | 128);
    rest >>>= 7;
  }
  bytes.push(rest);
  return Uint8Array.from(bytes);
}

function int(field: number, value: number): Bytes {
  return join([varint((field << 3) | WIRE_VARINT), varint(value)]);
}

/** A nested message or a string. */
function block(field: number, content: string | readonly Uint8Array[]): Bytes {
  const bytes = typeof content === "string" ? encoder.encode(content) : join(content);
  return join([varint((field << 3) | WIRE_LENGTH), varint(bytes.length), bytes]);
}

/** A vector of f32 whose length is fixed, or unknown and called by a name. */
interface Vector {
  readonly name: string;
  readonly length: number | string;
}

interface Node {
  readonly op: "Add" | "Mul";
  readonly inputs: readonly string[];
  readonly output: string;
}

/** A ValueInfoProto: name, and type = tensor(float, shape = [length]). */
function valueInfo(field: number, { name, length }: Vector): Bytes {
  const dimension = typeof length === "number" ? int(1, length) : block(2, length);
  const shape = block(2, [block(1, [dimension])]);
  const tensor = block(1, [int(1, ELEMENT_FLOAT), shape]);
  return block(field, [block(1, name), block(2, [tensor])]);
}

function model(
  name: string,
  inputs: readonly Vector[],
  nodes: readonly Node[],
  out: Vector,
): Bytes {
  const graph = [
    ...nodes.map((node) =>
      block(1, [
        ...node.inputs.map((input) => block(1, input)),
        block(2, node.output),
        block(3, `${node.op}:${node.output}`),
        block(4, node.op),
      ])
    ),
    block(2, name),
    ...inputs.map((input) => valueInfo(11, input)),
    valueInfo(12, out),
  ];
  return join([
    int(1, IR_VERSION),
    block(2, "tierfold"),
    block(7, graph),
    block(8, [int(2, OPSET)]),
  ]);
}

/** The names of the inputs and outputs of the models. */
export const NAMES = {
  /** The sum so far: as long as the sources, or one value, +0.0, that starts a sum. */
  before: "before",
  /** Source i of a fold, counted from 0. */
  source: (i: number): string => `source${i}`,
  /** The result of a fold. */
  sum: "sum",
  /** The vector to scale, the one value to scale it by, and the result. */
  value: "value",
  factor: "factor",
  product: "product",
};

/**
 * The model before + source0 + ... + source(count - 1), added from left to right. The sum so far may be
 * one +0.0 (broadcast), so that one model both starts and continues sums; a constant zero in the model
 * would be optimised away together with its effect on -0.0.
 */
export function foldModel(count: number): Uint8Array<ArrayBuffer> {
  const nodes: Node[] = [];
  let left = NAMES.before;
  for (let i = 0; i < count; i++) {
    const output = i === count - 1 ? NAMES.sum : `partial${i}`;
    nodes.push({ op: "Add", inputs: [left, NAMES.source(i)], output });
    left = output;
  }
  return model(
    `fold${count}`,
    [
      { name: NAMES.before, length: "before_length" },
      ...Array.from({ length: count }, (_, i) => ({ name: NAMES.source(i), length: "length" })),
    ],
    nodes,
    { name: NAMES.sum, length: "length" },
  );
}

/** The model value x factor, with a factor of one value. */
export function scaleModel(): Uint8Array<ArrayBuffer> {
  return model(
    "scale",
    [{ name: NAMES.value, length: "length" }, { name: NAMES.factor, length: 1 }],
    [{ op: "Mul", inputs: [NAMES.value, NAMES.factor], output: NAMES.product }],
    { name: NAMES.product, length: "length" },
  );
}
