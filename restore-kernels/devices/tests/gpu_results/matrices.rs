//! Forms of what tensor cores do. Each thread's operands become its registers of the matrices, as they are or with the
//! highest bit of each exponent cleared: then nothing is infinite, and most sums are of numbers near one another.

/// `mma`: result, factors, what is added; registers of the factors; bits that are kept where exponents are.
const FLOATS: [(&str, &str, [u32; 2], u32); 8] = [
    ("m16n8k8", "f32.f16.f16.f32", [2, 1], 0xBFFF_BFFF),
    ("m16n8k16", "f32.f16.f16.f32", [4, 2], 0xBFFF_BFFF),
    ("m16n8k8", "f16.f16.f16.f16", [2, 1], 0xBFFF_BFFF),
    ("m16n8k16", "f16.f16.f16.f16", [4, 2], 0xBFFF_BFFF),
    ("m16n8k8", "f32.bf16.bf16.f32", [2, 1], 0xBFFF_BFFF),
    ("m16n8k16", "f32.bf16.bf16.f32", [4, 2], 0xBFFF_BFFF),
    ("m16n8k4", "f32.tf32.tf32.f32", [2, 1], 0xBFFF_FFFF),
    ("m16n8k8", "f32.tf32.tf32.f32", [4, 2], 0xBFFF_FFFF),
];
/// The same of integers and bits, with the registers of what is added.
const INTEGERS: [(&str, &[&str], [u32; 3]); 7] = [
    ("m8n8k16", &["s8.s8", "u8.u8", "s8.u8", "u8.s8"], [1, 1, 2]),
    ("m16n8k16", &["s8.s8", "u8.u8", "s8.u8", "u8.s8"], [2, 1, 4]),
    ("m16n8k32", &["s8.s8", "u8.u8", "s8.u8", "u8.s8"], [4, 2, 4]),
    ("m8n8k32", &["s4.s4", "u4.u4", "s4.u4", "u4.s4"], [1, 1, 2]),
    ("m16n8k32", &["s4.s4", "u4.u4"], [2, 1, 4]),
    ("m16n8k64", &["s4.s4", "u4.u4", "s4.u4"], [4, 2, 4]),
    ("m8n8k128", &[], [1, 1, 2]),
];

/// Names and instructions.
pub fn forms() -> Vec<(String, String)> {
    let mut forms = vec![];
    for (shape, types, [a, b], kept) in FLOATS {
        for kept in [u32::MAX, kept] {
            let sums = if types.starts_with("f16") { 2 } else { 4 };
            let name = format!("mma.sync.aligned.{shape}.row.col.{types}");
            forms.extend(mma(&name, [a, b, sums], kept));
        }
    }
    for (shape, types, counts) in INTEGERS {
        for types in types {
            for limited in ["", ".satfinite"] {
                let name = format!("mma.sync.aligned.{shape}.row.col{limited}.s32.{types}.s32");
                forms.extend(mma(&name, counts, u32::MAX));
            }
        }
    }
    for (shape, counts) in [
        ("m8n8k128", [1, 1, 2]),
        ("m16n8k128", [2, 1, 4]),
        ("m16n8k256", [4, 2, 4]),
    ] {
        for matching in ["xor", "and"] {
            let name = format!("mma.sync.aligned.{shape}.row.col.s32.b1.b1.s32.{matching}.popc");
            forms.extend(mma(&name, counts, u32::MAX));
        }
    }
    for (shape, a, b, sums) in [
        ("m8n8k4", 1, 1, 2),
        ("m16n8k4", 2, 1, 4),
        ("m16n8k8", 4, 2, 4),
        ("m16n8k16", 8, 4, 4),
    ] {
        forms.push(doubles(shape, a, b, sums));
    }
    for transposed in ["", ".trans"] {
        for count in [1, 2, 4] {
            forms.push(loads(count, transposed));
        }
    }
    let name = "movmatrix.sync.aligned.m8n8.trans.b16";
    forms.push((name.to_owned(), format!("{name} %r0, %r1")));
    for layout in ["row", "col"] {
        for (shape, a, c, registers) in [
            ("m16n16k16", "f16", "f32", [8, 8, 8]),
            ("m8n32k16", "f16", "f32", [8, 8, 8]),
            ("m32n8k16", "f16", "f32", [8, 8, 8]),
            ("m16n16k16", "f16", "f16", [8, 8, 4]),
            ("m16n16k16", "bf16", "f32", [4, 4, 8]),
            ("m8n32k16", "bf16", "f32", [2, 8, 8]),
            ("m16n16k8", "tf32", "f32", [4, 4, 8]),
            ("m16n16k16", "s8", "s32", [2, 2, 8]),
            ("m32n8k16", "u8", "s32", [4, 1, 8]),
        ] {
            forms.push(wmma(shape, layout, a, c, registers));
        }
    }
    forms.push(wmma("m8n8k32", "row", "s4", "s32", [1, 1, 2]));
    forms
}

/// So many registers, in braces.
fn registers(letter: char, count: u32) -> String {
    let names: Vec<String> = (0..count).map(|number| format!("%{letter}{number}")).collect();
    format!("{{{}}}", names.join(", "))
}

/// Registers `%a0` to `%a3`, `%b0`, `%b1`, and `%c0` to `%c3` of the thread's operands.
fn operands(kept: u32) -> String {
    let mut text = "mov.b64 {%a0, %a1}, %rd1; mov.b64 {%a2, %a3}, %rd2; mov.b64 {%b0, %b1}, %rd3; \
                    shf.l.wrap.b32 %c0, %b0, %b1, 8; shf.l.wrap.b32 %c1, %a0, %a2, 3; \
                    xor.b32 %c2, %a1, %b0; mov.b32 %c3, %a3; "
        .to_owned();
    if kept != u32::MAX {
        for name in ["a0", "a1", "a2", "a3", "b0", "b1", "c0", "c1", "c2", "c3"] {
            text += &format!("and.b32 %{name}, %{name}, {kept:#x}; ");
        }
    }
    text
}

/// Each pair of registers of the result by itself.
fn mma(name: &str, [a, b, sums]: [u32; 3], kept: u32) -> Vec<(String, String)> {
    let pairs = (0..sums / 2).map(|pair| {
        let text = format!(
            "{{ .reg .b32 %a<4>, %b<2>, %c<4>, %d<4>; {}{name} {}, {}, {}, {}; mov.b64 %rd11, {{%d{}, %d{}}}; }} \
             mov.b64 %rd0, %rd11",
            operands(kept),
            registers('d', sums),
            registers('a', a),
            registers('b', b),
            registers('c', sums),
            2 * pair,
            2 * pair + 1,
        );
        let tame = if kept == u32::MAX { "" } else { ", tame" };
        (format!("{name}, pair {pair}{tame}"), text)
    });
    pairs.collect()
}

/// Double precision, of moderate size.
fn doubles(shape: &str, a: u32, b: u32, sums: u32) -> (String, String) {
    let name = format!("mma.sync.aligned.{shape}.row.col.f64.f64.f64.f64");
    let mut text = "{ .reg .f64 %a<8>, %b<4>, %c<4>, %d<4>; .reg .b64 %x<3>; ".to_owned();
    for number in 0..3 {
        let exponent = 0x3F80_0000_0000_0000_u64;
        text += &format!(
            "and.b64 %x{number}, %rd{}, 0x807fffffffffffff; or.b64 %x{number}, %x{number}, {exponent:#x}; ",
            number + 1
        );
    }
    for (letter, count) in [('a', a), ('b', b), ('c', sums)] {
        for number in 0..count {
            let shift = 5 * number + u32::from(letter as u8 - b'a');
            text += &format!(
                "shr.u64 %rd11, %x{}, {shift}; xor.b64 %rd11, %rd11, %x{}; and.b64 %rd11, %rd11, 0x803fffffffffffff; \
                 or.b64 %rd11, %rd11, 0x3f80000000000000; mov.b64 %{letter}{number}, %rd11; ",
                number % 3,
                (number + 1) % 3,
            );
        }
    }
    text += &format!(
        "{name} {}, {}, {}, {}; mov.b64 %rd11, %d0; ",
        registers('d', sums),
        registers('a', a),
        registers('b', b),
        registers('c', sums)
    );
    for number in 1..sums {
        text += &format!("mov.b64 %rd10, %d{number}; mul.lo.u64 %rd11, %rd11, 3; xor.b64 %rd11, %rd11, %rd10; ");
    }
    (name, text + "} mov.b64 %rd0, %rd11")
}

/// Each lane stores a row of eight elements first.
fn loads(count: u32, transposed: &str) -> (String, String) {
    let name = format!("ldmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16");
    let mut text = "{ .shared .align 16 .b8 rows[16384]; .reg .b32 %d<4>, %s; mov.u32 %s, rows; \
                    mad.lo.u32 %s, %r9, 16, %s; st.shared.v2.b64 [%s], {%rd1, %rd2}; bar.sync 0; "
        .to_owned();
    text += &format!("{name} {}, [%s]; mov.b32 %r10, %d0; ", registers('d', count));
    for number in 1..count {
        text += &format!("mul.lo.u32 %r10, %r10, 3; xor.b32 %r10, %r10, %d{number}; ");
    }
    (name, text + "} mov.b32 %r0, %r10")
}

/// From shared memory, and back to it. All four quarters of what is there count.
fn wmma(shape: &str, layout: &str, element: &str, sum: &str, [a, b, sums]: [u32; 3]) -> (String, String) {
    let kept: u64 = match element {
        "f16" | "bf16" => 0xBFFF_BFFF_BFFF_BFFF,
        "tf32" => 0xBFFF_FFFF_BFFF_FFFF,
        _ => u64::MAX,
    };
    let named = match element {
        "f16" => format!("{sum}.{sum}"),
        _ => format!("{sum}.{element}.{element}.{sum}"),
    };
    let other = match (element, layout) {
        ("s4", _) | (_, "row") => "col",
        _ => "row",
    };
    // Of each lane, in the result.
    let words = match sum {
        "f16" => 2,
        _ => sums / 2,
    };
    let loads: String = (0..words)
        .map(|number| format!("ld.shared.b64 %x{number}, [%s5+{}]; ", 16384 + 8 * number))
        .collect();
    let mixes: String = (1..words)
        .map(|number| format!("mul.lo.u64 %rd11, %rd11, 3; xor.b64 %rd11, %rd11, %x{number}; "))
        .collect();
    let text = format!(
        "{{ .shared .align 32 .b8 tiles[49152]; .reg .b32 %a<8>, %b<8>, %c<8>, %d<8>, %s<6>; .reg .b64 %x<4>; \
         mov.u32 %s0, tiles; mad.lo.u32 %s1, %r9, 16, %s0; and.b64 %x0, %rd1, {kept:#x}; and.b64 %x1, %rd2, {kept:#x}; \
         st.shared.v2.b64 [%s1], {{%x0, %x1}}; shr.u32 %s2, %r9, 5; and.b32 %s3, %s2, 30; \
         mad.lo.u32 %s1, %s3, 512, %s0; add.u32 %s3, %s2, 7; and.b32 %s3, %s3, 30; mad.lo.u32 %s3, %s3, 512, %s0; and.b32 %s4, %s2, 15; mad.lo.u32 %s4, %s4, 1024, %s0; \
         mad.lo.u32 %s5, %s2, 1024, %s0; bar.sync 0; \
         wmma.load.a.sync.aligned.{layout}.{shape}.shared.{element} {}, [%s1]; \
         wmma.load.b.sync.aligned.{other}.{shape}.shared.{element} {}, [%s3]; \
         wmma.load.c.sync.aligned.{layout}.{shape}.shared.{sum} {}, [%s4]; \
         wmma.mma.sync.aligned.{layout}.{other}.{shape}.{named} {}, {}, {}, {}; bar.sync 0; \
         wmma.store.d.sync.aligned.{other}.{shape}.shared.{sum} [%s5+16384], {}; bar.sync 0; \
         and.b32 %s2, %r9, 31; mad.lo.u32 %s5, %s2, {}, %s5; \
         {loads}mov.b64 %rd11, %x0; {mixes}}} mov.b64 %rd0, %rd11",
        registers('a', a),
        registers('b', b),
        registers('c', sums),
        registers('d', sums),
        registers('a', a),
        registers('b', b),
        registers('c', sums),
        registers('d', sums),
        8 * words,
    );
    (format!("wmma, {layout}, {shape}, {named}"), text)
}
