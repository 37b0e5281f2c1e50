/**
 * A program's config file as JSON Schema, for editors and for checks before a start.
 *
 * @module
 */
import { z } from "zod";
import { flagOf, type OptionTable } from "./spec.ts";

/** Of what a schema is made. */
export interface Described {
  /** The program's name. */
  readonly name: string;
  readonly table: OptionTable;
}

/** What the value of an option looks like in JSON, in the words of JSON Schema 2020-12. */
export function valueSchema(schema: z.ZodType): Record<string, unknown> {
  const { $schema: _, ...rest } = z.toJSONSchema(schema, { io: "input", unrepresentable: "any" });
  return rest;
}

/**
 * The schema of a program's config file: JSON Schema 2020-12.
 *
 * It takes every file that the program takes. No key is required, since each value may come from a flag
 * or the environment instead; bounds that depend on several options are the program's alone.
 */
export function configSchema({ name, table }: Described): Record<string, unknown> {
  const properties: Record<string, unknown> = {
    $schema: { type: "string", description: "the address of this schema, for editors" },
  };
  for (const [key, spec] of Object.entries(table)) {
    properties[key] = {
      description: `${spec.help} (flag: ${flagOf(key)})`,
      ...(typeof spec.fallback === "string" ? { default: spec.fallback } : {}),
      ...valueSchema(spec.schema),
    };
  }
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: `config file of ${name}`,
    type: "object",
    properties,
    additionalProperties: false,
  };
}
