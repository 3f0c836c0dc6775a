//! The text form: printing and parsing are inverses, and no text makes the parser panic.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod generated;

use hetckpt_ir::module::{Global, Module, RejectedKernel};
use hetckpt_ir::text::parse::ParseError;
use hetckpt_ir::text::{parse, print};
use proptest::prelude::*;

const SAMPLE: &str = r#"kernel "_Z4axpyPff" {
  param "p\"0\\\u{e9}" at 0 size 8 align 8
  shared 1024
  shared_var "tile" at 0 size 1024
  local 48
  local_var "depot" at 0 size 40
  max_ntid 256 1 1
  req_ntid 16 16 1
  min_cta_per_sm 2
  max_registers 64
  reg %r0..%r3 w32
  reg %r4 pred
  reg %r5..%r6 w64
  resume rp0 entry bb0
  resume rp1 loop bb1
  resume rp2 barrier_arrive bb2
  resume rp3 barrier_leave bb3
bb0:
  ld.param.u32 %r0, [0] !12
  ld.global.nc.f32 {%r1, _}, ["table"+16]
  special %r2, tid_x
  poll rp0, bb1
bb1:
  @!%r4 fma.f32.rn.ftz %r1, %r1, %r2, 0x3f800000 !14
  setp.lt.s32 %r4, %r0, 7, and !%r4
  warp.shfl_down %r3|%r4, %r1, 16, 31 mask 0xffffffff arrive rp1 leave rp1 poll
  warp.match_any.b32 %r3|_, %r1 mask 0xffffffff
  opaque "wgmma.fence; // $0" uses {%r1, %r2} defs {}
  atom.cas.global.relaxed.gpu.b32 _, [%r5-8], 0, %r1
  br !%r4, bb1, bb2 !15
bb2:
  barrier 0 count 64 red and %r4, !%r4 arrive rp2 leave rp3 next bb3
bb3:
  exit
}
"#;

#[test]
fn sample_prints_as_it_was_written() {
    let kernel = parse::kernel(SAMPLE).unwrap();
    assert_eq!(print::kernel(&kernel), SAMPLE);
    assert_eq!(kernel.blocks.len(), 4);
    assert_eq!(kernel.params[0].name, "p\"0\\é");
}

#[test]
fn comments_and_blank_lines_are_ignored() {
    let text = SAMPLE.replace("bb3:\n", "\n ; a comment\n\nbb3:   ; the end\n");
    assert_eq!(parse::kernel(&text).unwrap(), parse::kernel(SAMPLE).unwrap());
}

#[test]
fn module_round_trips() {
    let module = Module {
        globals: vec![
            Global {
                name: "table".into(),
                is_constant: true,
                is_extern: false,
                is_managed: true,
                size_bytes: 16,
                align_bytes: 8,
                init: vec![0, 255, 16],
                relocations: vec![(8, "other".into(), -4)],
            },
            Global {
                name: "other".into(),
                is_constant: false,
                is_extern: true,
                is_managed: false,
                size_bytes: 1 << 40,
                align_bytes: 1,
                init: vec![],
                relocations: vec![],
            },
        ],
        kernels: vec![parse::kernel(SAMPLE).unwrap()],
        rejected: vec![RejectedKernel {
            name: "k".into(),
            reasons: vec!["line 3: tex".into(), "line 4\n".into()],
        }],
    };
    assert_eq!(parse::module(&print::module(&module)).unwrap(), module);
}

fn error_of(from: &str, to: &str) -> String {
    assert!(SAMPLE.contains(from), "the sample lacks {from}");
    parse::kernel(&SAMPLE.replace(from, to)).unwrap_err().to_string()
}

#[test]
fn errors_name_line_and_what_was_expected() {
    let end = "expected the end of the line, found";
    assert_eq!(error_of("exit\n", "exit bb1\n"), format!("line 34: {end} `bb1`"));
    assert_eq!(
        error_of("special", "spezial"),
        "line 21: expected an instruction or a terminator, found `spezial`"
    );
    assert_eq!(
        error_of("tid_x", "tid_w"),
        "line 21: expected a special register, found `tid_w`"
    );
    assert_eq!(
        error_of("[0] !12", "[0"),
        "line 19: expected ], found the end of the line"
    );
    assert_eq!(
        error_of("exit\n}\n", "exit\n"),
        "line 35: expected bbN: or }, found the end of the text"
    );
    assert_eq!(
        error_of("\"tile\"", "\"tile"),
        "line 4: expected a closing quote, found the end of the line"
    );
}

#[test]
fn ids_are_checked() {
    assert_eq!(
        error_of("%r2, 0x3f800000", "%r7, 0x3f800000"),
        "line 24: register %r7 is not declared"
    );
    assert_eq!(error_of("bb1, bb2 !15", "bb1, bb9 !15"), "line 30: there is no bb9");
    assert_eq!(error_of("rp0 entry bb0", "rp0 entry bb4"), "line 14: there is no bb4");
    assert_eq!(
        error_of("poll rp0", "poll rp4"),
        "line 22: resume point rp4 is not declared"
    );
    assert_eq!(error_of("bb2:", "bb3:"), "line 31: expected bb2 to be declared next");
    assert_eq!(
        error_of("reg %r4 pred", "reg %r5 pred"),
        "line 12: expected %r4 to be declared next"
    );
}

#[test]
fn a_huge_register_range_is_refused_without_allocating_it() {
    let text = SAMPLE.replace("reg %r5..%r6", "reg %r5..%r4294967295");
    assert!(matches!(
        parse::kernel(&text),
        Err(ParseError::Limit {
            line: 13,
            what: "registers",
            ..
        })
    ));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn generated_kernels_round_trip(seed: u64) {
        let kernel = generated::kernel(seed);
        let text = print::kernel(&kernel);
        let parsed = parse::kernel(&text).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        prop_assert_eq!(&parsed, &kernel);
        prop_assert_eq!(print::kernel(&parsed), text);
    }

    #[test]
    fn damaged_text_does_not_panic(at in 0usize..SAMPLE.len(), cut in 0usize..40, insert in "[%!@{}\\[\\]\", rb0-9.:;\\\\-]{0,6}") {
        if SAMPLE.is_char_boundary(at) {
            let end = SAMPLE.len().min(at + cut);
            let text = format!("{}{insert}{}", &SAMPLE[..at], &SAMPLE[end..]);
            if let Ok(kernel) = parse::kernel(&text) {
                prop_assert_eq!(parse::kernel(&print::kernel(&kernel)).unwrap(), kernel);
            }
        }
    }

    #[test]
    fn arbitrary_text_does_not_panic(text in "\\PC{0,200}") {
        let _ = parse::kernel(&text);
        let _ = parse::module(&format!("module\n{text}"));
    }
}
