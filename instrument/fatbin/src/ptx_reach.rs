//! Which kernels of a PTX text may do a thing, themselves or in functions that they call. The text is only split into
//! functions, instructions and words, so that one whose instructions nobody knows is understood, too.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::hidden::HiddenSince;

/// A function, as far as it matters here.
#[derive(Default)]
struct Function<'a> {
    linkage: Linkage,
    words: HashSet<&'a str>,
    /// Words of instructions that are no calls: a function's name there is its address.
    words_outside_calls: HashSet<&'a str>,
}

/// Who may run a function.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Linkage {
    /// The program: it is a kernel.
    Kernel,
    /// Functions of other texts of the module, too.
    Visible,
    /// Those of this text.
    #[default]
    Local,
}

/// The functions of a text, by their names.
pub(crate) struct Functions<'a>(BTreeMap<&'a str, Function<'a>>);

impl<'a> Functions<'a> {
    /// Those of `text` that have a body.
    pub fn of(text: &'a str) -> Self {
        let mut functions = BTreeMap::new();
        let mut words = Words(text);
        let mut declared: Option<(&str, Linkage)> = None;
        let mut linkage = Linkage::Local;
        while let Some(word) = words.next() {
            match word {
                ".visible" | ".weak" => linkage = Linkage::Visible,
                ".entry" => declared = words.name().map(|name| (name, Linkage::Kernel)),
                ".func" => declared = words.name().map(|name| (name, linkage)),
                "{" => {
                    let body = words.body();
                    // A variable's initial values have braces, too.
                    if let Some((name, linkage)) = declared.take() {
                        functions.insert(name, Function { linkage, ..body });
                    }
                    linkage = Linkage::Local;
                }
                ";" => (declared, linkage) = (None, Linkage::Local),
                _ => {}
            }
        }
        Self(functions)
    }

    /// From when there may be what is done in texts that have a word for which `is_such` holds, if one has.
    pub fn since(&self, is_such: impl Fn(&str) -> bool) -> Option<HiddenSince> {
        self.since_running(|function| function.words.iter().any(|word| is_such(word)))
    }

    /// The same, of those that take the address of a function.
    pub fn since_taking_addresses(&self) -> Option<HiddenSince> {
        self.since_running(|function| {
            let mut names = function.words_outside_calls.iter();
            names.any(|word| self.0.contains_key(word))
        })
    }

    /// Who calls a function that does it does it, too. A function that other texts may call stands for all kernels.
    fn since_running(&self, is_such: impl Fn(&Function<'_>) -> bool) -> Option<HiddenSince> {
        let mut callers: HashMap<&str, Vec<&str>> = HashMap::new();
        for (&name, function) in &self.0 {
            for &callee in function.words.iter().filter(|word| self.0.contains_key(*word)) {
                callers.entry(callee).or_default().push(name);
            }
        }
        let such = self.0.iter().filter(|(_, function)| is_such(function));
        let mut found: BTreeSet<&str> = such.map(|(&name, _)| name).collect();
        let mut open: Vec<&str> = found.iter().copied().collect();
        while let Some(name) = open.pop() {
            let above = callers.get(name).into_iter().flatten();
            open.extend(above.filter(|caller| found.insert(caller)));
        }
        if found.iter().any(|name| self.0[name].linkage == Linkage::Visible) {
            return Some(HiddenSince::AnyKernel);
        }
        let kernels = found.into_iter().filter(|name| self.0[name].linkage == Linkage::Kernel);
        let kernels: BTreeSet<String> = kernels.map(str::to_owned).collect();
        (!kernels.is_empty()).then_some(HiddenSince::Kernels(kernels))
    }
}

/// Words, and each other character by itself, without comments and strings.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    /// The name of a function, behind what it returns.
    fn name(&mut self) -> Option<&'a str> {
        let first = self.next()?;
        if first != "(" {
            return Some(first);
        }
        while self.next()? != ")" {}
        self.next()
    }

    /// What stands between braces, of which the first has been read.
    fn body(&mut self) -> Function<'a> {
        let mut body = Function::default();
        let mut depth = 1;
        let mut instruction: Vec<&str> = Vec::new();
        for word in self.by_ref() {
            match word {
                "{" => depth += 1,
                "}" => depth -= 1,
                ";" => {
                    let is_call = instruction
                        .iter()
                        .any(|word| *word == "call" || word.starts_with("call."));
                    if !is_call {
                        body.words_outside_calls.extend(&instruction);
                    }
                    body.words.extend(instruction.drain(..));
                }
                word => instruction.push(word),
            }
            if depth == 0 {
                break;
            }
        }
        body
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        loop {
            self.0 = self.0.trim_start();
            let ending = [("//", "\n"), ("/*", "*/"), ("\"", "\"")];
            let Some((start, end)) = ending.into_iter().find(|(start, _)| self.0.starts_with(start)) else {
                break;
            };
            let rest = &self.0[start.len()..];
            self.0 = rest.find(end).map_or("", |at| &rest[at + end.len()..]);
        }
        let first = self.0.chars().next()?;
        let is_of_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '.' | '%');
        let length = match is_of_word(first) {
            true => self.0.find(|c| !is_of_word(c)).unwrap_or(self.0.len()),
            false => first.len_utf8(),
        };
        let (word, rest) = self.0.split_at(length);
        self.0 = rest;
        Some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
.extern .func  (.param .b64 func_retval0) malloc ( .param .b64 a );
.visible .global .align 8 .u64 table[1] = {{helper}};
.func  (.param .b32 r) helper(.param .b32 a)
{
	{ // a } in a comment
	call.uni (retval0),
	malloc,
	(param0);
	}
	ret;
}
.visible .entry quiet() { /* malloc */ .file "}malloc"; mov.u32 %malloc, 1; ret; }
.entry takes() { .reg .b64 %rd<2>; mov.u64 %rd1, helper; st.global.u64 [%rd0], %rd1; ret; }
.visible .entry above(.param .u64 p)
.maxntid 128
{
	@%p1 call (r), middle, (p);
}
.func (.param .b32 r) middle (.param .b32 a) { call (r), helper, (a); ret; }
.weak .entry indirect() { proto: .callprototype _ (.param .b32 _); call (r), %rd1, (p), proto; }
"#;

    fn kernels<const N: usize>(names: [&str; N]) -> Option<HiddenSince> {
        Some(HiddenSince::Kernels(names.into_iter().map(str::to_owned).collect()))
    }

    #[test]
    fn calls_are_followed() {
        let functions = Functions::of(TEXT);
        // What takes a function's address may have it called.
        assert_eq!(functions.since(|word| word == "malloc"), kernels(["above", "takes"]));
        assert_eq!(functions.since(|word| word == ".callprototype"), kernels(["indirect"]));
        assert_eq!(functions.since_taking_addresses(), kernels(["takes"]));
        assert_eq!(functions.since(|word| word == "no_such_thing"), None);
    }

    #[test]
    fn functions_for_other_texts_stand_for_all_kernels() {
        for linkage in [".visible", ".weak"] {
            let text = TEXT.replace(
                ".func (.param .b32 r) middle",
                &format!("{linkage} .func (.param .b32 r) middle"),
            );
            let functions = Functions::of(&text);
            assert_eq!(functions.since(|word| word == "malloc"), Some(HiddenSince::AnyKernel));
            assert_eq!(functions.since_taking_addresses(), kernels(["takes"]));
        }
    }

    #[test]
    fn a_text_that_breaks_off_is_taken_as_far_as_it_goes() {
        for end in 0..TEXT.len() {
            Functions::of(&TEXT[..end]);
        }
    }
}
