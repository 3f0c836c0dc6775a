//! What the compiler's IR says about kernels: arguments' address spaces, types and names, and group sizes.

use std::collections::HashMap;

use bincode::{Decode, Encode};

/// A kernel as its source declares it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Declaration {
    /// Its name.
    pub name: String,
    /// Its arguments.
    pub arguments: Vec<Argument>,
    /// `reqd_work_group_size`.
    pub required_group: Option<[u32; 3]>,
    /// `work_group_size_hint`.
    pub group_hint: Option<[u32; 3]>,
}

/// An argument as its source declares it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Argument {
    /// Where a pointer points; of a value it is private.
    pub space: Space,
    /// Its type's text.
    pub type_name: String,
    /// Its name.
    pub name: String,
    /// `const`, `restrict`, `volatile` by bits 0 to 2.
    pub qualifiers: u64,
}

/// Where a pointer points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Space {
    /// Nowhere: a value.
    Private,
    /// `__global`.
    Global,
    /// `__constant`.
    Constant,
    /// `__local`.
    Local,
}

impl Space {
    /// By the number that the IR has for it.
    fn from_number(number: u32) -> Self {
        match number {
            1 => Self::Global,
            2 => Self::Constant,
            3 => Self::Local,
            _ => Self::Private,
        }
    }
}

/// The kernels of IR text, in its order. What cannot be read is left out.
pub fn read(ir: &str) -> Vec<Declaration> {
    let nodes: HashMap<&str, &str> = ir.lines().filter_map(node).collect();
    let defined = ir.lines().filter(|line| line.starts_with("define "));
    defined.filter_map(|line| declaration(line, &nodes)).collect()
}

/// `!5 = !{…}`: number and content.
fn node(line: &str) -> Option<(&str, &str)> {
    let (number, content) = line.strip_prefix('!')?.split_once(" = ")?;
    let content = content.trim_start_matches("distinct ").strip_prefix("!{")?;
    Some((number, content.strip_suffix('}')?))
}

fn declaration(line: &str, nodes: &HashMap<&str, &str>) -> Option<Declaration> {
    let (_, rest) = line.split_once("_kernel void @")?;
    let name = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next()?,
        None => rest.split('(').next()?,
    };
    let content = |key: &str| {
        let (_, after) = line.split_once(&format!("!{key} !"))?;
        let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        nodes.get(&after[..end]).copied()
    };
    let texts = |key: &str| content(key).map(texts).unwrap_or_default();
    let numbers = |key: &str| content(key).map(numbers);
    let (types, names, qualifiers) = (
        texts("kernel_arg_type"),
        texts("kernel_arg_name"),
        texts("kernel_arg_type_qual"),
    );
    let spaces = numbers("kernel_arg_addr_space").unwrap_or_default();
    let arguments = spaces.into_iter().enumerate().map(|(index, space)| Argument {
        space: Space::from_number(space),
        type_name: types.get(index).cloned().unwrap_or_default(),
        name: names.get(index).cloned().unwrap_or_default(),
        qualifiers: qualifiers.get(index).map_or(0, |text| qualifier_bits(text)),
    });
    let three = |key: &str| numbers(key)?.try_into().ok();
    Some(Declaration {
        name: name.to_owned(),
        arguments: arguments.collect(),
        required_group: three("reqd_work_group_size"),
        group_hint: three("work_group_size_hint"),
    })
}

/// The strings of a node.
fn texts(content: &str) -> Vec<String> {
    // Quotes inside are written as their code, so each quote begins or ends a string.
    content.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The numbers of a node.
fn numbers(content: &str) -> Vec<u32> {
    let words = content.split(", ");
    words
        .filter_map(|word| word.trim().rsplit(' ').next()?.parse().ok())
        .collect()
}

fn qualifier_bits(text: &str) -> u64 {
    let bit = |word| match word {
        "const" => 1,
        "restrict" => 2,
        "volatile" => 4,
        _ => 0,
    };
    text.split(' ').map(bit).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_read_from_their_metadata() {
        let ir = "define internal void @helper() {\n\
            define dso_local spir_kernel void @k(float addrspace(1)* %0) #0 !kernel_arg_addr_space !5 \
            !kernel_arg_type !7 !kernel_arg_type_qual !9 !kernel_arg_name !10 !reqd_work_group_size !11 {\n\
            !5 = !{i32 1, i32 3, i32 0}\n!7 = !{!\"float*\", !\"int*\", !\"struct S\"}\n\
            !9 = !{!\"restrict const\", !\"\", !\"\"}\n!10 = !{!\"a\", !\"b\", !\"c\"}\n!11 = !{i32 8, i32 4, i32 1}\n";
        let kernels = read(ir);
        assert_eq!(kernels.len(), 1);
        assert_eq!(kernels[0].name, "k");
        assert_eq!(kernels[0].required_group, Some([8, 4, 1]));
        assert_eq!(kernels[0].group_hint, None);
        let spaces: Vec<Space> = kernels[0].arguments.iter().map(|argument| argument.space).collect();
        assert_eq!(spaces, [Space::Global, Space::Local, Space::Private]);
        assert_eq!(kernels[0].arguments[2].type_name, "struct S");
        assert_eq!(
            (kernels[0].arguments[0].qualifiers, &*kernels[0].arguments[1].name),
            (3, "b")
        );
    }
}
