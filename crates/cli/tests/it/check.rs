//! `asset check` and `prompt render`: files without a server.

use crate::{Terminal, directory, shown};

const SKILL: &str = "kind: skill\nslug: s\nowner_ref: team:x\ncontent: {}\n";

#[test]
fn a_file_of_no_known_kind_does_not_hide_the_others() {
    let files = directory(&[("notes.yaml", "a: 1\n"), ("other.yaml", "kind: skil\ncontent: {}\n"), ("s.yaml", SKILL)]);
    let names = ["notes.yaml", "other.yaml", "s.yaml"].map(|name| files.path().join(name));
    let [notes, other, skill] = names.each_ref().map(shown);
    let came = Terminal::offline().run(&["asset", "check", notes, other, skill]);
    assert_eq!(came.code, 1, "{}", came.err);
    for line in [
        format!("{notes}:1:1: invalid_asset_kind: neither the file nor its name says the kind"),
        format!("{other}:1:7: invalid_asset_kind: "),
        format!("{skill}:4:10: "),
    ] {
        assert!(came.err.lines().any(|told| told.starts_with(&line)), "{line}: {}", came.err);
    }
    let came = Terminal::offline().run(&["asset", "check", "--kind", "skil", skill]);
    assert!(came.code == 2 && came.err.contains("a kind is one of"), "a word of the command itself: {}", came.err);
}
