//! Functions in OpenCL C for what PTX has an instruction for and OpenCL C no operator: put before a kernel as far as it
//! calls them.
//!
//! They are kept as OpenCL C in the `.cl` files, a definition each paragraph. Those whose name ends in `_global` exist
//! for shared memory too, ending in `_local`.

use std::collections::BTreeSet;

const SOURCES: [&str; 5] = [
    include_str!("integer.cl"),
    include_str!("float.cl"),
    include_str!("float64.cl"),
    include_str!("atomic.cl"),
    include_str!("warp.cl"),
];

/// One definition.
struct Helper {
    name: String,
    text: String,
}

/// The definitions that `body` needs, in the order of the files, which is one of definition before use.
pub(super) fn needed_by(body: &str) -> String {
    let all: Vec<Helper> = SOURCES.iter().flat_map(|source| paragraphs(source)).collect();
    let mut wanted: BTreeSet<String> = identifiers(body).map(str::to_owned).collect();
    // Backwards: what a definition uses stands before it.
    let mut chosen: Vec<&Helper> = Vec::new();
    for helper in all.iter().rev() {
        if wanted.contains(&helper.name) {
            wanted.extend(identifiers(&helper.text).map(str::to_owned));
            chosen.push(helper);
        }
    }
    chosen
        .iter()
        .rev()
        .map(|helper| format!("{}\n\n", helper.text))
        .collect()
}

/// The names in a text of C.
pub(super) fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
}

fn paragraphs(source: &str) -> Vec<Helper> {
    let mut helpers = Vec::new();
    for text in source.trim_end().split("\n\n") {
        let Some(name) = defined_name(text) else { continue };
        let text = text.to_owned();
        if let Some(stem) = name.strip_suffix("_global") {
            helpers.push(Helper {
                name: format!("{stem}_local"),
                text: text.replace("_global", "_local"),
            });
        }
        helpers.push(Helper { name, text });
    }
    helpers
}

/// The function or structure that a paragraph defines: the name before its parameters, or the structure's last word.
fn defined_name(text: &str) -> Option<String> {
    let code = text.lines().find(|line| !line.starts_with("//"))?;
    let line = if code.starts_with("typedef") {
        text.lines().last()?
    } else {
        code
    };
    let name = line.split('(').next()?;
    identifiers(name).last().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brings_what_is_called_and_what_that_calls() {
        let text = needed_by("d1 = ptx_brev_64(d0);");
        assert!(text.contains("static uint ptx_brev_32(uint a)"));
        assert!(text.find("ptx_brev_32") < text.find("static ulong ptx_brev_64"));
        assert!(!text.contains("ptx_clz"));
        assert_eq!(needed_by("r1 = r2 + r3;"), "");
    }

    #[test]
    fn defines_each_name_once_and_before_its_use() {
        let all: Vec<Helper> = SOURCES.iter().flat_map(|source| paragraphs(source)).collect();
        let mut defined = BTreeSet::new();
        for helper in &all {
            assert!(defined.insert(helper.name.clone()), "{} twice", helper.name);
            for name in identifiers(&helper.text).filter(|name| name.starts_with("ptx_")) {
                assert!(defined.contains(name), "{name} in {}", helper.name);
            }
        }
    }

    #[test]
    fn derives_the_forms_for_shared_memory() {
        let text = needed_by("r1 = ptx_atom_inc_u32_local(at, 3u);");
        assert!(
            text.contains("ptx_atom_inc_u32_local(volatile __local uint *at, uint value)"),
            "{text}"
        );
    }
}
