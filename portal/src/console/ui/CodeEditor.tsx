import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { json } from "@codemirror/lang-json";
import { yaml } from "@codemirror/lang-yaml";
import { bracketMatching, HighlightStyle, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { lintGutter, setDiagnostics } from "@codemirror/lint";
import { EditorState } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useRef, type RefObject } from "react";
import { ReportedTexts } from "../core/reportedTexts";
import type { Finding } from "../core/positions";

interface Props {
  label: string;
  language: "json" | "yaml";
  value: string;
  onChange: (value: string) => void;
  findings: readonly Finding[];
  /** Moves the cursor to an offset, and focuses the editor. */
  goTo: RefObject<((offset: number) => void) | null>;
}

const COLOURS = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--accent)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--good)" },
  { tag: [tags.number, tags.bool, tags.null, tags.keyword], color: "var(--wait)" },
  { tag: [tags.comment], color: "var(--muted)", fontStyle: "italic" },
]);

const THEME = EditorView.theme({
  "&": { border: "1px solid var(--line)", borderRadius: "6px", backgroundColor: "var(--raised)", color: "var(--text)", fontSize: "0.875rem", maxBlockSize: "32rem" },
  "&.cm-focused": { outline: "3px solid var(--text)", outlineOffset: "2px" },
  ".cm-scroller": { fontFamily: "ui-monospace, monospace", lineHeight: "1.5", minBlockSize: "14rem" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-cursor": { borderInlineStartColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "var(--raised)", color: "var(--muted)", borderInlineEnd: "1px solid var(--soft-line)" },
  ".cm-activeLine": { backgroundColor: "transparent", boxShadow: "inset 2px 0 0 var(--accent)" },
  ".cm-tooltip": { backgroundColor: "var(--raised)", color: "var(--text)", border: "1px solid var(--line)" },
});

/**
 * Handles typing over a selection. The browser's own handling would add inline styles, which the content security
 * policy refuses and reports.
 */
function replaceSelection(event: InputEvent, view: EditorView): boolean {
  if (event.inputType !== "insertText" || event.data === null || view.state.selection.main.empty) return false;
  event.preventDefault();
  view.dispatch({ ...view.state.replaceSelection(event.data), userEvent: "input.type", scrollIntoView: true });
  return true;
}

/**
 * A text editor with line numbers, syntax colours, undo, and marks at the server's messages. The
 * Tab key leaves the editor.
 *
 * The editor is in a shadow root. CodeMirror then uses constructed style sheets, which the content security policy
 * permits, instead of style elements.
 */
export default function CodeEditor({ label, language, value, onChange, findings, goTo }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const changed = useRef(onChange);
  changed.current = onChange;
  const start = useRef(value);
  const echoes = useRef(new ReportedTexts());
  useEffect(() => {
    const element = host.current;
    if (!element) return;
    const root = element.shadowRoot ?? element.attachShadow({ mode: "open" });
    const editor = new EditorView({
      root,
      parent: root,
      state: EditorState.create({
        doc: start.current,
        extensions: [
          lineNumbers(),
          lintGutter(),
          history(),
          drawSelection(),
          indentOnInput(),
          bracketMatching(),
          highlightActiveLine(),
          EditorView.lineWrapping,
          language === "json" ? json() : yaml(),
          syntaxHighlighting(COLOURS),
          THEME,
          keymap.of([...defaultKeymap, ...historyKeymap]),
          EditorView.contentAttributes.of({ "aria-label": label, spellcheck: "false" }),
          EditorView.domEventHandlers({ beforeinput: replaceSelection }),
          EditorView.updateListener.of((update) => {
            if (!update.docChanged) return;
            const text = update.state.doc.toString();
            echoes.current.report(text);
            changed.current(text);
          }),
        ],
      }),
    });
    view.current = editor;
    goTo.current = (offset) => {
      editor.dispatch({ selection: { anchor: Math.min(offset, editor.state.doc.length) }, scrollIntoView: true });
      editor.focus();
    };
    return () => {
      editor.destroy();
      view.current = null;
      goTo.current = null;
    };
  }, [goTo, label, language]);
  useEffect(() => {
    const editor = view.current;
    // Only a text from another source, such as another version, replaces the editor's text. A text that the editor
    // reported may be older than its current text.
    if (!echoes.current.isEcho(value) && editor && editor.state.doc.toString() !== value) editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: value } });
    start.current = value;
  }, [value]);
  useEffect(() => {
    const editor = view.current;
    if (!editor) return;
    const { length } = editor.state.doc;
    const marks = findings.map(({ from, to, code, message }) => ({ from: Math.min(from, length), to: Math.min(to, length), severity: "error" as const, message: `${message} (${code})` }));
    editor.dispatch(setDiagnostics(editor.state, marks));
  }, [findings]);
  return <div ref={host} className="editor" data-testid="editor" />;
}
