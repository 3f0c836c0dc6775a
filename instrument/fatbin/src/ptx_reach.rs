//! Which kernels of a PTX text may do a thing, themselves or in functions that they call. The text is only split into
//! functions, instructions and words, so that one whose instructions nobody knows is understood, too.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// A function, as far as it matters here.
#[derive(Default)]
struct Function<'a> {
    is_kernel: bool,
    words: HashSet<&'a str>,
    /// Words of instructions that are no calls: a function's name there is its address.
    words_outside_calls: HashSet<&'a str>,
}

/// The functions of a text, by their names.
pub(crate) struct Functions<'a>(BTreeMap<&'a str, Function<'a>>);

impl<'a> Functions<'a> {
    /// Those of `text` that have a body.
    pub fn of(text: &'a str) -> Self {
        let mut functions = BTreeMap::new();
        let mut words = Words(text);
        let mut declared: Option<(&str, bool)> = None;
        while let Some(word) = words.next() {
            match word {
                ".entry" | ".func" => declared = words.name().map(|name| (name, word == ".entry")),
                "{" => {
                    let body = words.body();
                    // A variable's initial values have braces, too.
                    if let Some((name, is_kernel)) = declared.take() {
                        functions.insert(name, Function { is_kernel, ..body });
                    }
                }
                ";" => declared = None,
                _ => {}
            }
        }
        Self(functions)
    }

    /// The kernels whose text, or that of what they call, has a word for which `is_such` holds.
    pub fn kernels_with(&self, is_such: impl Fn(&str) -> bool) -> BTreeSet<String> {
        self.kernels_reaching(|function| function.words.iter().any(|word| is_such(word)))
    }

    /// The kernels that, themselves or in what they call, take the address of a function.
    pub fn kernels_taking_addresses(&self) -> BTreeSet<String> {
        self.kernels_reaching(|function| {
            let mut names = function.words_outside_calls.iter();
            names.any(|word| self.0.contains_key(word))
        })
    }

    fn kernels_reaching(&self, is_such: impl Fn(&Function<'_>) -> bool) -> BTreeSet<String> {
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
        let kernels = found.into_iter().filter(|name| self.0[name].is_kernel);
        kernels.map(str::to_owned).collect()
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

    fn names(found: BTreeSet<String>) -> Vec<String> {
        found.into_iter().collect()
    }

    #[test]
    fn calls_are_followed() {
        let functions = Functions::of(TEXT);
        // What takes a function's address may have it called.
        assert_eq!(
            names(functions.kernels_with(|word| word == "malloc")),
            ["above", "takes"]
        );
        assert_eq!(
            names(functions.kernels_with(|word| word == ".callprototype")),
            ["indirect"]
        );
        assert_eq!(names(functions.kernels_taking_addresses()), ["takes"]);
    }

    #[test]
    fn a_text_that_breaks_off_is_taken_as_far_as_it_goes() {
        for end in 0..TEXT.len() {
            Functions::of(&TEXT[..end]);
        }
    }
}
