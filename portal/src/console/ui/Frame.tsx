import { Modal } from "@mantine/core";
import type { ReactNode } from "react";
import { useConsoleText } from "../i18n";

/** A modal window. Its title is not in a `header` element, which screen readers would treat as a second page banner. */
export function Frame({ title, size = "md", onClose, children }: { title: string; size?: "md" | "lg"; onClose: () => void; children: ReactNode }) {
  const text = useConsoleText();
  return (
    // Disables the scroll lock, because it adds a style element, which the content security policy forbids.
    <Modal.Root opened onClose={onClose} lockScroll={false} transitionProps={{ duration: 0 }} size={size}>
      <Modal.Overlay />
      <Modal.Content>
        <div className="dialog-head">
          <Modal.Title>{title}</Modal.Title>
          <Modal.CloseButton aria-label={text("close")} />
        </div>
        <Modal.Body>{children}</Modal.Body>
      </Modal.Content>
    </Modal.Root>
  );
}
