import { Modal } from "@mantine/core";
import type { ReactNode } from "react";
import { useConsoleText } from "../i18n";

/** A modal window. Its head is no `header` element, which would be a second banner of the page. */
export function Frame({ title, size = "md", onClose, children }: { title: string; size?: "md" | "lg"; onClose: () => void; children: ReactNode }) {
  const text = useConsoleText();
  return (
    // The scroll lock would add a style element, which the page's policy forbids.
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
