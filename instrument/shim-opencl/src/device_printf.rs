//! `printf` in kernels (OpenCL C 1.2, 6.12.13), as OpenCL C in front of a program's source. It puts the arguments into
//! a structure and gives that to `vprintf`, CUDA's function, which the driver library knows.
//!
//! It is a macro, because functions of OpenCL C have a fixed number of parameters. Arguments get C's default promotions
//! by an overloaded function.

use std::fmt::Write as _;

/// The function that PTX may call without a body.
pub const VPRINTF: &str = "vprintf";
/// Most arguments of a call, besides the format, as with CUDA (CUDA C++ Programming Guide, "Formatted Output").
const MAX_ARGUMENTS: usize = 32;
/// What an argument of a type is passed as.
const PROMOTIONS: [(&str, &str); 14] = [
    ("char", "int"),
    ("uchar", "int"),
    ("short", "int"),
    ("ushort", "int"),
    ("int", "int"),
    ("uint", "uint"),
    ("long", "long"),
    ("ulong", "ulong"),
    ("float", "double"),
    ("double", "double"),
    ("__constant const void *", "ulong"),
    ("__global const void *", "ulong"),
    ("__local const void *", "ulong"),
    ("__private const void *", "ulong"),
];

/// The text.
pub fn definitions() -> String {
    let mut text = format!("int {VPRINTF}(__constant const char *, __private void *);\n");
    let mut argument = |from: &str, to: &str| {
        let _ = writeln!(
            text,
            "inline __attribute__((overloadable, always_inline)) {to} __hetckpt_argument({from} value) {{ return ({to})value; }}"
        );
    };
    for (from, to) in PROMOTIONS {
        argument(from, to);
        let is_pointer = from.contains('*');
        for elements in [2, 3, 4, 8, 16].into_iter().filter(|_| !is_pointer) {
            let vector = format!("{from}{elements}");
            argument(&vector, &vector);
        }
    }
    // The last argument has number 1. Vector literals cannot stand in a structure's types, hence the variables; a
    // variable's type has an address space, a result's has none.
    let (mut fields, mut values) = (String::new(), String::new());
    for n in 1..=MAX_ARGUMENTS {
        let (more, others) = match n - 1 {
            0 => ("", String::new()),
            others => (", ...", format!(" __hetckpt_variables_{others}(__VA_ARGS__)")),
        };
        fields = format!("__typeof__(__hetckpt_argument(__hetckpt_{n})) a{n}; {fields}");
        values = format!("__hetckpt_{n}, {values}");
        let _ = writeln!(
            text,
            "#define __hetckpt_variables_{n}(a{more}) __auto_type __hetckpt_{n} = __hetckpt_argument(a);{others}\n\
             #define __hetckpt_printf_{n}(format, ...) \
             ({{ __hetckpt_variables_{n}(__VA_ARGS__) struct {{ {fields}}} __hetckpt_all = {{ {values}}}; \
             {VPRINTF}(format, &__hetckpt_all); }})"
        );
    }
    let _ = writeln!(text, "#define __hetckpt_printf_0(format) {VPRINTF}(format, 0)");
    let parameters: String = (0..=MAX_ARGUMENTS).map(|n| format!("_{n}, ")).collect();
    let numbers: String = (1..=MAX_ARGUMENTS).rev().map(|n| format!("{n}, ")).collect();
    let _ = writeln!(
        text,
        "#define __hetckpt_pick({parameters}n, ...) __hetckpt_printf_##n\n\
         #define printf(...) __hetckpt_pick(__VA_ARGS__, {numbers}0, 0)(__VA_ARGS__)"
    );
    text
}
