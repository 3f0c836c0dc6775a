//! Instruction forms with something to work on: registers and memory of the thread's own, and one word that holds all
//! that the instruction has changed.

use std::fmt::Write as _;

use crate::ptx_forms::Pattern;

/// Bytes of global, shared and local memory that a thread has for a form to work on.
pub const SLOT_BYTES: u32 = 32;

/// Who must come to a form together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Together {
    Thread,
    Warp,
    Block,
}

/// A form whose result depends on its operands alone.
#[derive(Clone, Debug)]
pub struct Form {
    /// The instruction.
    pub text: String,
    pub together: Together,
    /// True if PTX only bounds the error.
    pub is_approximate: bool,
}

/// Registers around a scope, all of 64 bits.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    /// Three operands.
    pub words: [&'a str; 3],
    /// Takes the result.
    pub result: &'a str,
    /// Address of [`SLOT_BYTES`] that nobody writes, in global memory.
    pub read: &'a str,
    /// Addresses of [`SLOT_BYTES`] of the thread's own, in global and shared memory and in its local frame.
    pub global: &'a str,
    pub shared: &'a str,
    pub local: &'a str,
}

impl Pattern {
    /// Its forms, if their results can be compared.
    #[must_use]
    pub fn comparable(&self) -> Vec<Form> {
        if self.refused.is_some() || self.target.ends_with('a') {
            return Vec::new();
        }
        let forms = self.forms().into_iter().filter_map(|text| {
            Some(Form {
                together: together(self.section, &text)?,
                is_approximate: text.contains(".approx") || text.contains(".full"),
                text,
            })
        });
        forms.collect()
    }
}

/// Who must come to a form together; `None` if its result is not its operands' alone, or there is none.
fn together(section: &str, form: &str) -> Option<Together> {
    let (opcode, operands) = form.split_once(' ').unwrap_or((form, ""));
    let base = opcode.split('.').next()?;
    let has = |part: &str| opcode.contains(part);
    match (section, base) {
        (
            "Integer arithmetic"
            | "Extended precision"
            | "Floating point"
            | "Half precision"
            | "Comparison and selection"
            | "Logic and shifts"
            | "Conversions"
            | "Video",
            _,
        )
        | ("Moves", "prmt") => Some(Together::Thread),
        ("Moves", "mov") => is_plain(operands).then_some(Together::Thread),
        ("Loads and stores", "ld" | "ldu" | "st") => {
            (!has(".const") && !has(".param") && !has(".async")).then_some(Together::Thread)
        }
        // Of pairs in shared memory driver 580 makes something else where forms stand one behind another; alone they
        // are right there.
        ("Synchronisation", "atom" | "red") => (!has(".shared.add.noftz") || !has("x2")).then_some(Together::Thread),
        // With a policy, driver 580 makes an instruction of it that an H200 takes for illegal.
        ("Asynchronous copies", "cp") => {
            (!has(".bulk") && !has("cache_hint") && operands.starts_with('[')).then_some(Together::Thread)
        }
        ("Synchronisation", "vote" | "match" | "redux" | "activemask")
        | ("Moves", "shfl")
        | ("Control flow", "elect") => Some(Together::Warp),
        // Which elements a register of `wmma` has is the implementation's affair.
        ("Matrices", "mma" | "movmatrix") => Some(Together::Warp),
        ("Matrices", "ldmatrix" | "stmatrix") => has(".shared").then_some(Together::Warp),
        ("Synchronisation", "bar" | "barrier") => (has(".red") && !operands.contains("64")).then_some(Together::Block),
        _ => None,
    }
}

/// True of registers, numbers and braces: no names of variables or special registers.
fn is_plain(operands: &str) -> bool {
    operands.split([',', ' ', '{', '}']).all(|word| {
        word.strip_prefix('%').map_or_else(
            || word.is_empty() || word == "_" || word.starts_with(|c: char| c.is_ascii_digit()),
            |name| name[1..].chars().all(|c| c.is_ascii_digit()),
        )
    })
}

/// Where `[%d20]` is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    None,
    /// Only read, in global memory.
    Read,
    Global,
    Shared,
    Local,
}

impl Memory {
    fn of(opcode: &str, form: &str) -> Self {
        let is_load = opcode.starts_with("ld.") || opcode.starts_with("ldu");
        match () {
            () if !form.contains('[') => Self::None,
            () if opcode.contains(".shared") => Self::Shared,
            () if opcode.contains(".local") => Self::Local,
            () if is_load => Self::Read,
            () => Self::Global,
        }
    }

    fn space(self) -> &'static str {
        match self {
            Self::None | Self::Read | Self::Global => "global",
            Self::Shared => "shared",
            Self::Local => "local",
        }
    }
}

/// Registers in `text`, each once: a letter and a number.
fn registers(text: &str) -> Vec<(char, u32)> {
    let mut found = Vec::new();
    for word in text.split('%').skip(1) {
        let mut chars = word.chars();
        let letter = chars.next().unwrap();
        let digits: String = chars.take_while(char::is_ascii_digit).collect();
        if let Ok(number) = digits.parse()
            && !found.contains(&(letter, number))
        {
            found.push((letter, number));
        }
    }
    found
}

/// The destination: what stands before the first comma outside of braces.
fn destination(operands: &str) -> &str {
    let mut depth = 0;
    let end = operands.find(|c| {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    });
    &operands[..end.unwrap_or(operands.len())]
}

/// Bits that are kept of a matrix's registers, so that few sums are infinite or no number.
fn kept(opcode: &str) -> u32 {
    match () {
        () if opcode.contains("tf32") => 0xBFFF_FFFF,
        () if opcode.contains("f16") => 0xBFFF_BFFF,
        () => u32::MAX,
    }
}

/// Gives registers with high numbers, which only matrices have, values of their own.
fn fill_matrices(text: &mut String, form: &str, opcode: &str) {
    let kept = kept(opcode);
    for (letter, number) in registers(form) {
        let odd = number.wrapping_mul(0x9E37_79B1) | 1;
        let (one, other) = (number % 3 + 1, (number + 1) % 3 + 1);
        match letter {
            'r' if opcode.contains("mma") => write!(
                text,
                "mul.lo.u32 %r{number}, %r{}, {odd:#x}; xor.b32 %r{number}, %r{number}, %r{}; and.b32 %r{number}, \
                 %r{number}, {kept:#x}; ",
                32 + one,
                32 + other,
            ),
            'd' if opcode.contains("f64") => write!(
                text,
                "mul.lo.u64 %d{number}, %d{}, {odd:#x}; xor.b64 %d{number}, %d{number}, %d{}; and.b64 %d{number}, \
                 %d{number}, 0x803fffffffffffff; or.b64 %d{number}, %d{number}, 0x3f80000000000000; ",
                32 + one,
                32 + other,
            ),
            _ => Ok(()),
        }
        .unwrap();
    }
}

/// Any 64 bits would not do for one: GPUs take that for an illegal instruction.
const POLICY: &str = "createpolicy.fractional.L2::evict_last.b64 %d1, 1.0; ";

/// What goes before an instruction so that its operands mean something, and behind it.
fn surroundings(form: &str, opcode: &str) -> (String, &'static str) {
    let base = opcode.split('.').next().unwrap();
    let carries = opcode.contains(".cc");
    match base {
        "fns" => ("and.b32 %r2, %r2, 31; bfe.s32 %r3, %r3, 0, 4; ".to_owned(), ""),
        "vote" | "match" | "redux" | "elect" | "shfl" => {
            let mask = form.rsplit(", ").next().unwrap();
            let set = if mask.starts_with("%r") {
                format!("mov.b32 {mask}, -1; ")
            } else {
                String::new()
            };
            (set, "")
        }
        "addc" | "madc" if !carries => ("add.cc.u32 %r30, %r4, %r6; ".to_owned(), ""),
        "subc" if !carries => ("sub.cc.u32 %r30, %r4, %r6; ".to_owned(), ""),
        "add" | "addc" | "mad" | "madc" if carries => {
            ("add.cc.u32 %r30, %r4, %r6; ".to_owned(), "addc.u32 %r31, 0, 0; ")
        }
        "sub" | "subc" if carries => ("sub.cc.u32 %r30, %r4, %r6; ".to_owned(), "subc.u32 %r31, 0, 0; "),
        "cp" => {
            let limit = if form.contains("], 16") { 15 } else { 3 };
            (format!("and.b32 %r1, %r1, {limit}; "), "cp.async.wait_all; ")
        }
        "ldmatrix" | "stmatrix" => ("bar.warp.sync -1; ".to_owned(), "bar.warp.sync -1; "),
        _ if opcode.contains("cache_hint") => (POLICY.to_owned(), ""),
        _ => (String::new(), ""),
    }
}

/// Whose bits of what is not a number are made the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OneNan {
    /// Those of double precision, which devices may choose.
    OfDoubles,
    OfAll,
}

/// Gives what is not a number the same bits everywhere.
fn canonical(text: &mut String, opcode: &str, one_nan: OneNan, (letter, number): (char, u32)) {
    let types = ["f16x2", "bf16x2", "f16", "bf16", "tf32", "f32", "f64"];
    let ty = opcode.split('.').find(|part| types.contains(part));
    let register = format!("%{letter}{number}");
    if one_nan == OneNan::OfDoubles && ty != Some("f64") {
        return;
    }
    match (letter, ty) {
        ('r', Some("f32" | "tf32")) => write!(
            text,
            "testp.notanumber.f32 %p3, {register}; selp.b32 {register}, 0x7fffffff, {register}, %p3; "
        ),
        ('d', Some("f64")) => write!(
            text,
            "testp.notanumber.f64 %p3, {register}; selp.b64 {register}, 0x7ff8000000000000, {register}, %p3; "
        ),
        ('h', Some(ty @ ("f16" | "bf16"))) => write!(
            text,
            "setp.nan.{ty} %p3, {register}, {register}; selp.b16 {register}, 0x7fff, {register}, %p3; "
        ),
        ('r', Some(ty @ ("f16x2" | "bf16x2"))) => write!(
            text,
            "setp.nan.{ty} %p2|%p3, {register}, {register}; @%p2 or.b32 {register}, {register}, 0x7fff; \
             @%p2 and.b32 {register}, {register}, 0xffff7fff; @%p3 or.b32 {register}, {register}, 0x7fff0000; \
             @%p3 and.b32 {register}, {register}, 0x7fffffff; "
        ),
        _ => Ok(()),
    }
    .unwrap();
}

/// A block of PTX that runs `form`.
///
/// # Panics
/// On an instruction that is none.
#[must_use]
pub fn scope(form: &Form, around: &Around<'_>, one_nan: OneNan) -> String {
    let instruction = form.text.replace("[gl]", "[%d20]");
    let last = instruction.rsplit("; ").next().unwrap();
    let (opcode, operands) = last.split_once(' ').unwrap();
    let memory = Memory::of(opcode, last);
    let [a, b, c] = around.words;
    let is_sum_in_memory = matches!(opcode.split('.').next(), Some("atom" | "red"));
    let sums_floats = is_sum_in_memory && ["f16", "f32", "f64"].iter().any(|&ty| opcode.contains(ty));
    // Memory is to hold no sum of what is no number.
    let (few, all) = match one_nan {
        OneNan::OfAll if sums_floats => (0xBFFF_BFFF_BFFF_BFFF, 0xBFFF_BFFF_BFFF_BFFF),
        _ if sums_floats && opcode.contains("f64") => (0xBFFF_FFFF_FFFF_FFFF, u64::MAX),
        _ => (u64::MAX, u64::MAX),
    };
    let mut text = format!(
        "{{ .reg .pred %p<4>; .reg .b8 %c<4>; .reg .b16 %h<8>; .reg .b32 %r<40>; .reg .b64 %d<40>; .reg .b64 %word; \
         and.b64 %d1, {a}, {all:#x}; and.b64 %d2, {b}, {all:#x}; and.b64 %d3, {c}, {all:#x}; mov.b64 %d0, %d2; \
         mov.b64 {{%r1, %r4}}, %d1; mov.b64 {{%r2, %r5}}, %d2; mov.b64 {{%r3, %r6}}, %d3; and.b64 %d1, %d1, {few:#x}; \
         xor.b32 %r7, %r1, %r5; mov.b32 %r0, %r5; \
         mov.b32 {{%h1, %h4}}, %r1; mov.b32 {{%h2, %h5}}, %r2; mov.b32 {{%h3, %h6}}, %r3; \
         xor.b16 %h7, %h1, %h5; mov.b16 %h0, %h4; mov.b32 {{%c0, %c1, %c2, %c3}}, %r1; \
         setp.lt.s32 %p0, %r1, %r3; setp.lt.s32 %p1, %r4, 0; setp.lt.s32 %p2, %r2, %r6; setp.lt.s32 %p3, %r5, 7; "
    );
    if opcode.contains("mma") {
        text += "mov.b32 %r33, %r1; mov.b32 %r34, %r2; mov.b32 %r35, %r3; \
                 mov.b64 %d33, %d1; mov.b64 %d34, %d2; mov.b64 %d35, %d3; ";
        fill_matrices(&mut text, last, opcode);
    }
    let slot = match memory {
        Memory::None | Memory::Global => around.global,
        Memory::Read => around.read,
        Memory::Shared => around.shared,
        Memory::Local => around.local,
    };
    let space = memory.space();
    write!(text, "mov.b64 %d20, {slot}; mov.b64 %d21, {}; ", around.read).unwrap();
    if !matches!(memory, Memory::None | Memory::Read) {
        write!(
            text,
            "xor.b64 %d22, %d1, %d2; st.{space}.v2.b64 [%d20], {{%d1, %d2}}; st.{space}.v2.b64 [%d20+16], {{%d3, %d22}}; "
        )
        .unwrap();
    }
    let (before, behind) = surroundings(last, opcode);
    write!(text, "{before}{instruction}; {behind}mov.b64 {}, 0; ", around.result).unwrap();
    let mix = |text: &mut String, conversion: &str| {
        write!(
            text,
            "{conversion}mul.lo.u64 {0}, {0}, 0x9e3779b97f4a7c15; xor.b64 {0}, {0}, %word; ",
            around.result
        )
        .unwrap();
    };
    let changed = destination(operands);
    if !changed.starts_with('[') {
        for (letter, number) in registers(changed) {
            canonical(&mut text, opcode, one_nan, (letter, number));
            let conversion = match letter {
                'p' => format!("selp.b64 %word, 1, 0, %p{number}; "),
                'c' => format!("cvt.u64.u8 %word, %c{number}; "),
                'h' => format!("cvt.u64.u16 %word, %h{number}; "),
                'r' => format!("cvt.u64.u32 %word, %r{number}; "),
                _ => format!("mov.b64 %word, %d{number}; "),
            };
            mix(&mut text, &conversion);
        }
    }
    if !behind.is_empty() && opcode.contains(".cc") {
        mix(&mut text, "cvt.u64.u32 %word, %r31; ");
    }
    let is_load = opcode.starts_with("ld");
    if !matches!(memory, Memory::None | Memory::Read) && !is_load {
        for word in 0..SLOT_BYTES / 8 {
            mix(&mut text, &format!("ld.{space}.b64 %word, [%d20+{}]; ", 8 * word));
        }
    }
    text + "}\n"
}
