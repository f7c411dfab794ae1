//! Embeds the built portal: lists the files in `portal/dist`, which `cargo xtask portal` writes. Without that
//! folder the list is empty, so that the server builds without Node.

use std::{env, error::Error, fmt::Write as _, fs, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    let dist = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../portal/dist");
    println!("cargo::rerun-if-changed={}", dist.display());
    println!("cargo::rerun-if-changed=build.rs");
    let mut names = Vec::new();
    for entry in fs::read_dir(&dist)? {
        let name = entry?.file_name().into_string().map_err(|_| "a file name in portal/dist is not UTF-8")?;
        let is_compressed = name.ends_with(".gz") || name.ends_with(".br");
        if !name.starts_with('.') && !is_compressed {
            names.push(name);
        }
    }
    names.sort();
    let mut list = String::from("static FILES: &[PortalFile] = &[\n");
    for name in names {
        let path = |suffix: &str| dist.join(format!("{name}{suffix}"));
        let compressed = |suffix: &str| match path(suffix) {
            file if file.is_file() => format!("Some(include_bytes!({file:?}))"),
            _ => "None".to_owned(),
        };
        let (plain, gzip, brotli) = (path(""), compressed(".gz"), compressed(".br"));
        writeln!(
            list,
            "    PortalFile {{ name: {name:?}, plain: include_bytes!({plain:?}), gzip: {gzip}, brotli: {brotli} }},"
        )?;
    }
    list.push_str("];\n");
    fs::write(Path::new(&env::var("OUT_DIR")?).join("portal_files.rs"), list)?;
    Ok(())
}
