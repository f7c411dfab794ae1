import { ADDITIONAL_PROPERTY_FLAG, canExpand, type ArrayFieldItemTemplateProps, type ArrayFieldTemplateProps, type FieldTemplateProps, type MultiSchemaFieldTemplateProps, type ObjectFieldTemplateProps, type OptionalDataControlsTemplateProps, type RJSFSchema } from "@rjsf/utils";
import type { FormProps } from "@rjsf/core/lib/components/Form.js";
import { useEffect, useRef, type FocusEvent, type ReactElement, type ReactNode } from "react";
import { useConsoleText } from "../i18n";
import { Hint, Messages } from "./messages";
import { isChoice, nameOf, typesOf } from "./schema";

/** The name of a field, and whether it is required. An alternative of a choice has the title of its type. */
function Name({ path, schema, required = false }: { path: readonly (string | number)[]; schema: RJSFSchema; required?: boolean | undefined }) {
  const text = useConsoleText();
  const isItem = typeof path.at(-1) === "number";
  return (
    <>
      <code>{(schema.anyOf ? undefined : schema.title) ?? nameOf(path)}</code> {required && !isItem && <span className="hint">({text("form_required")})</span>}
    </>
  );
}

/** One field with its name, its hint and the server's messages. Objects and lists render their own names. */
function FieldTemplate(props: FieldTemplateProps) {
  const { id, children, schema, uiSchema, fieldPathId, required = false } = props;
  const { path } = fieldPathId;
  const [type] = typesOf(schema);
  const isJson = uiSchema?.["ui:field"] === "JsonField";
  const isChoiceField = isChoice(schema) && !isJson;
  if (!isJson && schema.anyOf) {
    return (
      <Added {...props}>
        <fieldset className="form-group">
          <legend>
            <Name path={path} schema={schema} required={required} />
          </legend>
          <Hint id={`${id}__choice`} schema={schema} />
          {children}
        </fieldset>
      </Added>
    );
  }
  if (!isJson && (type === "object" || (type === "array" && !isChoiceField))) return <Added {...props}>{children}</Added>;
  const name = <Name path={path} schema={schema} required={required} />;
  return (
    <Added {...props}>
      <div className="field">
        {isChoiceField ? (
          <span id={`${id}__label`} className="field-name">
            {name}
          </span>
        ) : (
          <label htmlFor={id}>{name}</label>
        )}
        <Hint id={id} schema={schema} />
        {children}
        <Messages id={id} />
      </div>
    </Added>
  );
}

/**
 * A member of a map: a field for its key, its value, and a button that removes it. Other fields are rendered unchanged.
 */
function Added({ id, schema, label, children, onKeyRenameBlur, onRemoveProperty }: FieldTemplateProps) {
  const text = useConsoleText();
  if (!(ADDITIONAL_PROPERTY_FLAG in schema)) return <>{children}</>;
  const rename = (event: FocusEvent<HTMLInputElement>) => {
    // Refuses this key, because assigning it would set the prototype of the object and lose the member.
    if (event.target.value === "__proto__") event.target.value = label;
    else onKeyRenameBlur(event);
  };
  return (
    <div className="form-member">
      <div className="field">
        <label htmlFor={`${id}-key`}>{text("form_member_name")}</label>
        <input key={label} id={`${id}-key`} defaultValue={label} autoComplete="off" spellCheck={false} onBlur={rename} />
      </div>
      {children}
      <button type="button" className="plain" onClick={onRemoveProperty}>
        {text("field_remove", { name: label })}
      </button>
    </div>
  );
}

interface GroupProps {
  id: string;
  path: readonly (string | number)[];
  required?: boolean | undefined;
  schema: RJSFSchema;
  control: ReactNode;
  children: ReactNode;
}

/** The group of fields of an object or a list. */
function Group({ id, path, required, schema, control, children }: GroupProps) {
  const isRoot = path.length === 0;
  const head = (
    <>
      <Hint id={id} schema={schema} />
      <Messages id={id} />
      {!isRoot && control}
    </>
  );
  if (isRoot) {
    return (
      <div id={id} className="stack">
        {head}
        {children}
      </div>
    );
  }
  return (
    <fieldset id={id} className="form-group" aria-describedby={`${id}__hint`}>
      <legend>
        <Name path={path} schema={schema} required={required} />
      </legend>
      {head}
      {children}
    </fieldset>
  );
}

function ObjectFieldTemplate({ fieldPathId, formData, properties, schema, uiSchema, required, optionalDataControl, onAddProperty }: ObjectFieldTemplateProps) {
  const text = useConsoleText();
  const { $id: id, path } = fieldPathId;
  const knownNames = new Set(properties.map(({ name }) => name));
  const isShown = properties.length > 0 || optionalDataControl === undefined;
  const adding = useRef<number | null>(null);
  // Moves the focus to the key of an added member.
  useEffect(() => {
    if (adding.current === null || properties.length <= adding.current) return;
    adding.current = null;
    document.getElementById(`${id}.${properties.at(-1)?.name}-key`)?.focus();
  }, [id, properties]);
  const unlistedNames = isShown ? Object.keys((formData as object | undefined) ?? {}).filter((name) => !knownNames.has(name)) : [];
  return (
    <Group id={id} path={path} required={required} schema={schema} control={optionalDataControl}>
      {properties.map(({ name, content }) => (
        <div key={name}>{content}</div>
      ))}
      {canExpand(schema, uiSchema, formData) && (
        <button
          type="button"
          className="plain"
          onClick={() => {
            adding.current = properties.length;
            onAddProperty();
          }}
        >
          {text("form_add_to", { name: nameOf(path) })}
        </button>
      )}
      {unlistedNames.map((name) => (
        <div key={name} id={`${id}.${name}`} tabIndex={-1} className="notice notice-wait">
          {text("form_not_shown", { name })}
          <Messages id={`${id}.${name}`} />
        </div>
      ))}
    </Group>
  );
}

const CONTROLS = "input, select, textarea, button";

function ArrayFieldTemplate({ fieldPathId, items, canAdd, onAddClick, schema, required, optionalDataControl }: ArrayFieldTemplateProps) {
  const text = useConsoleText();
  const { $id: id, path } = fieldPathId;
  const list = useRef<HTMLOListElement>(null);
  const count = useRef(items.length);
  // Moves the focus to an added item, and keeps the focus in the list after the removal of an item.
  useEffect(() => {
    const before = count.current;
    count.current = items.length;
    if (!list.current?.parentElement?.contains(document.activeElement) && document.activeElement !== document.body) return;
    if (items.length > before) list.current?.lastElementChild?.querySelector<HTMLElement>(CONTROLS)?.focus();
    if (items.length < before) (list.current?.nextElementSibling as HTMLElement | null)?.focus();
  }, [items.length]);
  return (
    <Group id={id} path={path} required={required} schema={schema} control={optionalDataControl}>
      <ol ref={list} className="form-items">
        {items}
      </ol>
      {canAdd && (
        <button type="button" className="plain" onClick={onAddClick}>
          {text("form_add_to", { name: nameOf(path) })}
        </button>
      )}
    </Group>
  );
}

function ArrayFieldItemTemplate({ children, buttonsProps }: ArrayFieldItemTemplateProps) {
  const text = useConsoleText();
  const { fieldPathId, hasMoveUp, hasMoveDown, onMoveUpItem, onMoveDownItem, onRemoveItem } = buttonsProps;
  const name = nameOf(fieldPathId.path);
  return (
    <li className="form-item">
      {children}
      <div className="buttons">
        {hasMoveUp && (
          <button type="button" className="plain" onClick={onMoveUpItem}>
            {text("field_up", { name })}
          </button>
        )}
        {hasMoveDown && (
          <button type="button" className="plain" onClick={onMoveDownItem}>
            {text("field_down", { name })}
          </button>
        )}
        <button type="button" className="plain" onClick={onRemoveItem}>
          {text("field_remove", { name })}
        </button>
      </div>
    </li>
  );
}

/** The selection of an alternative, followed by the field of the selected alternative. */
function MultiSchemaFieldTemplate({ selector, optionSchemaField }: MultiSchemaFieldTemplateProps) {
  const text = useConsoleText();
  const { id } = (selector as ReactElement<{ id: string }>).props;
  return (
    <>
      <div className="field">
        <label htmlFor={id}>{text("form_alternative")}</label>
        {selector}
      </div>
      {optionSchemaField}
    </>
  );
}

/** Buttons that add or remove an optional part of the content. */
function OptionalDataControlsTemplate({ id, onAddClick, onRemoveClick }: OptionalDataControlsTemplateProps) {
  const text = useConsoleText();
  const name = id.replace(/__optional\w+$/, "").split(".").at(-1) ?? "";
  return (
    <button type="button" id={id} className="plain" onClick={onAddClick ?? onRemoveClick}>
      {text(onAddClick ? "form_add" : "field_remove", { name })}
    </button>
  );
}

export const templates: NonNullable<FormProps["templates"]> = {
  FieldTemplate,
  ObjectFieldTemplate,
  ArrayFieldTemplate,
  ArrayFieldItemTemplate,
  MultiSchemaFieldTemplate,
  OptionalDataControlsTemplate,
};
