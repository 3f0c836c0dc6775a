//! The instruction forms of PTX ISA 9.0 that NVIDIA's assembler takes for `sm_75` to `sm_90a`, as kernels of one
//! instruction each: a table by the ISA's sections (`ptx_forms.txt`), written as patterns.
//!
//! A line of it is a target and an instruction in which `<a/b/>` stands for `a`, `b` or nothing. `! REASON` after it
//! says that the front end refuses all of the line's forms; `= REASON: forms | why` is what documentation says of
//! these.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use hetckpt_ir::kernel::Kernel;
use hetckpt_ir::module::bind_globals;

/// What few forms need, by what they say.
const DECLARED: [(&str, &str); 6] = [
    ("%c", ".reg .b8 %c<4>;"),
    ("%q", ".reg .b128 %q<4>;"),
    ("lo", ".local .align 16 .b8 lo[64];"),
    ("(pr)", ".param .b32 pr; .param .b32 pa;"),
    ("targets", "targets: .branchtargets L;"),
    (
        "prototype",
        "prototype: .callprototype (.param .b32 _) _ (.param .b32 _);",
    ),
];

const TABLE: &str = include_str!("ptx_forms.txt");

/// One line: instructions that differ in what is interchangeable.
#[derive(Debug)]
pub struct Pattern {
    /// Number of the line, from 1.
    pub line: usize,
    /// The heading that it stands under.
    pub section: &'static str,
    /// The first target that has them (`75`, `90a`).
    pub target: &'static str,
    /// As in the table.
    pub text: &'static str,
    /// Why they are refused, where they are: a key of [`Table::reasons`].
    pub refused: Option<&'static str>,
}

/// All of it.
#[derive(Debug)]
pub struct Table {
    /// In the order of the file.
    pub patterns: Vec<Pattern>,
    /// What documentation says of refused forms: short names, and why.
    pub reasons: BTreeMap<&'static str, (&'static str, &'static str)>,
}

impl Table {
    /// Reads it.
    ///
    /// # Panics
    /// On a line that is none of those described above.
    #[must_use]
    pub fn read() -> Self {
        let mut table = Self {
            patterns: Vec::new(),
            reasons: BTreeMap::new(),
        };
        let mut section = "";
        for (line, text) in (1..).zip(TABLE.lines()) {
            if let Some(reason) = text.strip_prefix("= ") {
                let (key, words) = reason.split_once(": ").expect("a reason has a name");
                let both = words.split_once(" | ").expect("forms and why");
                table.reasons.insert(key, both);
            } else if let Some(heading) = text.strip_prefix("# ") {
                section = heading;
            } else if !text.is_empty() {
                let (target, form) = text.split_once(' ').expect("a form has a target");
                let (text, refused) = match form.split_once(" ! ") {
                    Some((text, reason)) => (text, Some(reason)),
                    None => (form, None),
                };
                table.patterns.push(Pattern {
                    line,
                    section,
                    target,
                    text,
                    refused,
                });
            }
        }
        table
    }
}

impl Pattern {
    /// Its instructions.
    #[must_use]
    pub fn forms(&self) -> Vec<String> {
        let mut forms = vec![String::new()];
        let mut rest = self.text;
        while let Some((before, choice)) = rest.split_once('<') {
            let (choice, after) = choice.split_once('>').expect("a choice ends");
            forms = forms
                .iter()
                .flat_map(|form| choice.split('/').map(move |one| format!("{form}{before}{one}")))
                .collect();
            rest = after;
        }
        forms.iter().map(|form| format!("{form}{rest}")).collect()
    }

    /// The kernel of its first instruction, with variables at made-up addresses.
    ///
    /// # Panics
    /// If the front end refuses it.
    #[must_use]
    pub fn first_kernel(&self) -> Kernel {
        let text = module(self.target, &self.forms()[..1]);
        let mut lowered = hetckpt_ptx::lower_module(&text).expect("a module");
        let addresses = (1u64..).map(|number| number << 20).zip(&lowered.globals);
        let addresses = addresses
            .map(|(address, global)| (global.name.clone(), address))
            .collect();
        let mut kernel = lowered.kernels.pop().expect("a form that is taken");
        bind_globals(&mut kernel, &addresses).expect("all variables are known");
        kernel
    }
}

/// PTX for `target`, in which kernel `k0`, `k1`, … is the instruction of that number. Registers are named by their
/// widths (`%p`, `%c` for 8 bits, `%h`, `%r`, `%d`, `%q`); `gl`, `co`, `sh` and `lo` are variables, `p0` a parameter.
#[must_use]
pub fn module(target: &str, forms: &[String]) -> String {
    let mut text = format!(
        ".version 9.0\n.target sm_{target}\n.address_size 64\n\
         .global .align 16 .b8 gl[1024];\n.const .align 16 .b8 co[256];\n.shared .align 128 .b8 sh[1024];\n\
         .func (.param .b32 result) fn0 (.param .b32 a) {{\n\
         .reg .b32 %r<2>; ld.param.b32 %r0, [a]; st.param.b32 [result], %r0; ret;\n}}\n\
         .func fn1 () {{ ret; }}\n"
    );
    for (number, form) in forms.iter().enumerate() {
        let declared: String = DECLARED
            .iter()
            .filter(|(name, _)| form.contains(name))
            .map(|(_, text)| *text)
            .collect();
        write!(
            text,
            ".visible .entry k{number}(.param .u64 p0, .param .u64 p1, .param .u64 p2) {{\n\
             .reg .pred %p<4>; .reg .b16 %h<8>; .reg .b32 %r<40>; .reg .b64 %d<40>; {declared}\n\
             ld.param.u64 %d20, [p0]; ld.param.u64 %d21, [p1]; ld.param.u64 %d22, [p2];\n\
             {form};\nL: ret;\n}}\n"
        )
        .expect("a string takes all");
    }
    text
}
