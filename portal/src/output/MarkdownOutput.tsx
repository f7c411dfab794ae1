import Markdown, { type Components } from "react-markdown";
import remarkGfm from "remark-gfm";
import { useText } from "../i18n";
import { linkTarget, nestHeadings } from "./markdown";

/**
 * A link that shows its target, so that its text cannot hide the target. Links with other schemes are shown as text.
 */
const Link: Components["a"] = ({ href, children }) => {
  const target = linkTarget(href ?? "");
  if (!target) return <span>{children}</span>;
  return (
    <>
      <a href={target.href} target="_blank" rel="noreferrer noopener nofollow">
        {children}
      </a>{" "}
      <bdi className="link-target" dir="ltr">
        ({target.shown})
      </bdi>
    </>
  );
};

/**
 * Shows the description of an image. Images are not loaded, because the request would reveal the
 * reader to another server.
 */
const Image: Components["img"] = ({ alt }) => {
  const text = useText();
  return <span className="hint">[{text("image", { text: alt ?? "" })}]</span>;
};

const COMPONENTS: Components = {
  a: Link,
  img: Image,
  input: ({ checked }) => <span>{checked ? "☑" : "☐"}</span>,
  table: ({ children }) => (
    <div className="scroll" tabIndex={0}>
      <table>{children}</table>
    </div>
  ),
};

/** Renders Markdown as React elements. Embedded HTML is shown as text. */
export default function MarkdownOutput({ value }: { value: string }) {
  return (
    <Markdown remarkPlugins={[remarkGfm, () => nestHeadings]} components={COMPONENTS} urlTransform={(address) => address}>
      {value}
    </Markdown>
  );
}
