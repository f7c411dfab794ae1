import { ADDITIONAL_PROPERTY_FLAG, type RJSFSchema } from "@rjsf/utils";

type Node = RJSFSchema & { "x-asset-kinds"?: string[]; "x-default"?: unknown };

/** The keywords that belong to one type, so that each alternative of a union keeps only its own. */
const KEYWORDS: Record<string, readonly string[]> = {
  object: ["properties", "required", "additionalProperties", "propertyNames", "maxProperties", "minProperties"],
  array: ["items", "minItems", "maxItems", "uniqueItems"],
  string: ["pattern", "minLength", "maxLength", "format"],
  number: ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"],
  integer: ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"],
};
const TYPED = new Set(Object.values(KEYWORDS).flat());

export const isNode = (value: unknown): value is Node => value !== null && typeof value === "object" && !Array.isArray(value);

/** The types of a node; `null` is no type of its own, because an empty field stands for it. */
export const typesOf = ({ type }: Node): string[] => (Array.isArray(type) ? type : type === undefined ? [] : [type]).filter((one) => one !== "null");

/** The definition that a node refers to; the node itself without a reference. */
function resolved(root: RJSFSchema, node: Node): Node {
  const target = ((root.$defs ?? {}) as Record<string, unknown>)[/^#\/\$defs\/(.+)$/.exec(node.$ref ?? "")?.[1] ?? ""];
  return isNode(target) ? target : node;
}

/** A node without its reference. A reference to an asset tells its slug which kinds it may name. */
function inlined(root: RJSFSchema, node: Node): Node {
  const kinds = node["x-asset-kinds"];
  const target = resolved(root, node);
  if (!kinds || target === node) return node;
  const { $ref: _, ...rest } = node;
  const slug = target.properties?.["slug"];
  return { ...target, ...rest, properties: { ...target.properties, ...(isNode(slug) ? { slug: { ...slug, "x-asset-kinds": kinds } as Node } : {}) } };
}

/** A node with several types as a choice between them. */
function alternatives(node: Node): Node {
  const types = typesOf(node);
  if (types.length < 2) return node;
  const common = Object.entries(node).filter(([name]) => name !== "type" && !TYPED.has(name));
  const own = (type: string) => Object.fromEntries(Object.entries(node).filter(([name]) => KEYWORDS[type]?.includes(name)));
  return { ...Object.fromEntries(common), anyOf: types.map((type) => ({ type, ...own(type) }) as Node) };
}

const titled = (option: Node): Node => ({ ...option, title: option.title ?? typesOf(option)[0] ?? "object" });
const mapped = (nodes: Record<string, unknown>, change: (node: Node) => Node) => Object.fromEntries(Object.entries(nodes).map(([name, node]) => [name, isNode(node) ? change(node) : node]));

/**
 * The schema as the form library needs it. Defaults become hints, so that opening a form changes nothing; unions become
 * choices; references to assets know the kinds that they may name.
 */
export function formSchema(root: RJSFSchema): RJSFSchema {
  const prepared = (node: Node): Node => {
    const { default: preset, ...rest } = alternatives(inlined(root, node));
    return {
      ...rest,
      ...(preset === undefined ? {} : { "x-default": preset }),
      ...(rest.properties && { properties: mapped(rest.properties, prepared) }),
      ...(isNode(rest.items) && { items: prepared(rest.items) }),
      ...(isNode(rest.additionalProperties) && { additionalProperties: prepared(rest.additionalProperties) }),
      ...(rest.anyOf && { anyOf: rest.anyOf.filter(isNode).map((option) => titled(prepared(option))) }),
      ...(rest.$defs && { $defs: mapped(rest.$defs as Record<string, unknown>, prepared) }),
    } as Node;
  };
  return prepared(root);
}

const isContainer = (value: unknown): boolean => value !== null && typeof value === "object";
const fitsType = (type: string, value: unknown): boolean => (type === "object" ? isNode(value) : type === "array" ? Array.isArray(value) : !isContainer(value));

/** Whether a node has no fields of its own: any JSON object fits. */
const isFree = (node: Node): boolean => typesOf(node)[0] === "object" && !node.properties && !isNode(node.additionalProperties);
/** Whether a node maps names, which the author chooses, to values. The library adds the present names to its properties. */
export const isMap = (node: Node): boolean =>
  typesOf(node)[0] === "object" && isNode(node.additionalProperties) && Object.values(node.properties ?? {}).every((property) => isNode(property) && ADDITIONAL_PROPERTY_FLAG in property);
/** Whether a node is a list of different values of a fixed set. */
export const isChoice = (node: Node): boolean => node.uniqueItems === true && isNode(node.items) && Array.isArray(node.items.enum);

/** Whether a value has no field: its schema says nothing about it, or it does not have the type that the field shows. */
export function needsJson(node: Node, value: unknown): boolean {
  if (node.anyOf) return value !== undefined && !node.anyOf.filter(isNode).some((option) => typesOf(option).some((type) => fitsType(type, value)));
  if (node.enum) return isContainer(value);
  const [type] = typesOf(node);
  if (type === undefined || isFree(node)) return true;
  if (isChoice(node) && Array.isArray(value) && value.some(isContainer)) return true;
  if (value === null) return type === "object" || type === "array";
  return value !== undefined && !fitsType(type, value);
}

/** What a new item of a list is until its author fills it. */
function initial(node: Node): unknown {
  const empty: Record<string, unknown> = { string: "", object: {}, array: [], boolean: false, number: 0, integer: 0 };
  return node.enum?.[0] ?? empty[typesOf(node)[0] ?? ""] ?? null;
}

/** The content of a form as JSON: empty fields are absent, and an empty item of a list is an empty value of its type. */
export function withoutGaps(root: RJSFSchema, value: unknown, node: Node = root): unknown {
  const own = resolved(root, node);
  if (Array.isArray(value)) {
    const items = isNode(own.items) ? resolved(root, own.items) : {};
    return value.map((item) => (item === undefined ? initial(items) : withoutGaps(root, item, items)));
  }
  if (!isNode(value)) return value;
  const others = isNode(own.additionalProperties) ? own.additionalProperties : undefined;
  const kept = Object.entries(value).filter(([, member]) => member !== undefined);
  return Object.fromEntries(
    kept.map(([name, member]) => {
      const property = own.properties && Object.hasOwn(own.properties, name) ? own.properties[name] : undefined;
      return [name, withoutGaps(root, member, isNode(property) ? property : (others ?? {}))];
    }),
  );
}

/** The id of the field at a path of the server, such as `content.variables[1].name`. */
export const fieldId = (path: string): string => path.replaceAll(/\[(\d+)\]/g, ".$1");

/** The name of a field: that of its property, or that of its list with a number. */
export function nameOf(path: readonly (string | number)[]): string {
  const last = path.at(-1) ?? "";
  return typeof last === "number" ? `${nameOf(path.slice(0, -1))} ${last + 1}` : last;
}
