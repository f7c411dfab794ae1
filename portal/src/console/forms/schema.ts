import { ADDITIONAL_PROPERTY_FLAG, type RJSFSchema } from "@rjsf/utils";

type Node = RJSFSchema & { "x-asset-kinds"?: string[]; "x-default"?: unknown };

/** The schema keywords of each type. Each alternative of a union retains only the keywords of its type. */
const KEYWORDS: Record<string, readonly string[]> = {
  object: ["properties", "required", "additionalProperties", "propertyNames", "maxProperties", "minProperties"],
  array: ["items", "minItems", "maxItems", "uniqueItems"],
  string: ["pattern", "minLength", "maxLength", "format"],
  number: ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"],
  integer: ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"],
};
const TYPED = new Set(Object.values(KEYWORDS).flat());

export const isNode = (value: unknown): value is Node => value !== null && typeof value === "object" && !Array.isArray(value);

/** The types of a node, without `null`, which an empty field represents. */
export const typesOf = ({ type }: Node): string[] => (Array.isArray(type) ? type : type === undefined ? [] : [type]).filter((name) => name !== "null");

/** The definition that a node references, or the node itself if it has no reference. */
function resolved(root: RJSFSchema, node: Node): Node {
  const target = ((root.$defs ?? {}) as Record<string, unknown>)[/^#\/\$defs\/(.+)$/.exec(node.$ref ?? "")?.[1] ?? ""];
  return isNode(target) ? target : node;
}

/**
 * Inlines a reference to an asset, so that its field `slug` has the permitted asset kinds. Returns
 * other nodes unchanged.
 */
function inlined(root: RJSFSchema, node: Node): Node {
  const kinds = node["x-asset-kinds"];
  const target = resolved(root, node);
  if (!kinds || target === node) return node;
  const { $ref: _, ...otherKeywords } = node;
  const slug = target.properties?.["slug"];
  return { ...target, ...otherKeywords, properties: { ...target.properties, ...(isNode(slug) ? { slug: { ...slug, "x-asset-kinds": kinds } as Node } : {}) } };
}

/** Converts a node with several types to a choice (`anyOf`) between nodes of one type. */
function alternatives(node: Node): Node {
  const types = typesOf(node);
  if (types.length < 2) return node;
  const common = Object.entries(node).filter(([name]) => name !== "type" && !TYPED.has(name));
  const keywordsOf = (type: string) => Object.fromEntries(Object.entries(node).filter(([name]) => KEYWORDS[type]?.includes(name)));
  return { ...Object.fromEntries(common), anyOf: types.map((type) => ({ type, ...keywordsOf(type) }) as Node) };
}

const titled = (option: Node): Node => ({ ...option, title: option.title ?? typesOf(option)[0] ?? "object" });
const mapped = (nodes: Record<string, unknown>, change: (node: Node) => Node) => Object.fromEntries(Object.entries(nodes).map(([name, node]) => [name, isNode(node) ? change(node) : node]));

/**
 * Converts a schema for the form library. Defaults become hints, so that opening a form changes nothing. Unions become
 * choices, and fields of references to assets receive the permitted kinds.
 */
export function formSchema(root: RJSFSchema): RJSFSchema {
  const prepared = (node: Node): Node => {
    const { default: preset, ...keywords } = alternatives(inlined(root, node));
    return {
      ...keywords,
      ...(preset === undefined ? {} : { "x-default": preset }),
      ...(keywords.properties && { properties: mapped(keywords.properties, prepared) }),
      ...(isNode(keywords.items) && { items: prepared(keywords.items) }),
      ...(isNode(keywords.additionalProperties) && { additionalProperties: prepared(keywords.additionalProperties) }),
      ...(keywords.anyOf && { anyOf: keywords.anyOf.filter(isNode).map((option) => titled(prepared(option))) }),
      ...(keywords.$defs && { $defs: mapped(keywords.$defs as Record<string, unknown>, prepared) }),
    } as Node;
  };
  return prepared(root);
}

const isContainer = (value: unknown): boolean => value !== null && typeof value === "object";
const fitsType = (type: string, value: unknown): boolean => (type === "object" ? isNode(value) : type === "array" ? Array.isArray(value) : !isContainer(value));

/** Whether a node accepts any JSON object, and therefore has no fields. */
const isFree = (node: Node): boolean => typesOf(node)[0] === "object" && !node.properties && !isNode(node.additionalProperties);
/**
 * Whether a node is a map, whose keys the author chooses. The form library adds existing keys to the node's properties.
 */
export const isMap = (node: Node): boolean =>
  typesOf(node)[0] === "object" && isNode(node.additionalProperties) && Object.values(node.properties ?? {}).every((property) => isNode(property) && ADDITIONAL_PROPERTY_FLAG in property);
/** Whether a node is a list of distinct values from a fixed set. */
export const isChoice = (node: Node): boolean => node.uniqueItems === true && isNode(node.items) && Array.isArray(node.items.enum);

/** Whether a value has no field, because its schema has no type or the value has another type than the field. */
export function needsJson(node: Node, value: unknown): boolean {
  if (node.anyOf) return value !== undefined && !node.anyOf.filter(isNode).some((option) => typesOf(option).some((type) => fitsType(type, value)));
  if (node.enum) return isContainer(value);
  const [type] = typesOf(node);
  if (type === undefined || isFree(node)) return true;
  if (isChoice(node) && Array.isArray(value) && value.some(isContainer)) return true;
  if (value === null) return type === "object" || type === "array";
  return value !== undefined && !fitsType(type, value);
}

/** The initial value of a new list item. */
function initial(node: Node): unknown {
  const empty: Record<string, unknown> = { string: "", object: {}, array: [], boolean: false, number: 0, integer: 0 };
  return node.enum?.[0] ?? empty[typesOf(node)[0] ?? ""] ?? null;
}

/** The content of a form as JSON. Empty fields are omitted, and empty list items become empty values of their type. */
export function withoutEmptyFields(root: RJSFSchema, value: unknown, node: Node = root): unknown {
  const resolvedNode = resolved(root, node);
  if (Array.isArray(value)) {
    const items = isNode(resolvedNode.items) ? resolved(root, resolvedNode.items) : {};
    return value.map((item) => (item === undefined ? initial(items) : withoutEmptyFields(root, item, items)));
  }
  if (!isNode(value)) return value;
  const additionalNode = isNode(resolvedNode.additionalProperties) ? resolvedNode.additionalProperties : undefined;
  const members = Object.entries(value).filter(([, member]) => member !== undefined);
  return Object.fromEntries(
    members.map(([name, member]) => {
      const property = resolvedNode.properties && Object.hasOwn(resolvedNode.properties, name) ? resolvedNode.properties[name] : undefined;
      return [name, withoutEmptyFields(root, member, isNode(property) ? property : (additionalNode ?? {}))];
    }),
  );
}

/** The id of the field at a path in the server's form, such as `content.variables[1].name`. */
export const fieldId = (path: string): string => path.replaceAll(/\[(\d+)\]/g, ".$1");

/** The name of a field: the name of its property, or the name of its list followed by the item's number. */
export function nameOf(path: readonly (string | number)[]): string {
  const lastPart = path.at(-1) ?? "";
  return typeof lastPart === "number" ? `${nameOf(path.slice(0, -1))} ${lastPart + 1}` : lastPart;
}
