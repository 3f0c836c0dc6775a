//! What OpenCL C has no form for is refused with the kernel's name and the line.

use hetckpt_codegen::opencl::{Error, OpenClOptions, generate};

fn refusal(body: &str) -> Error {
    let ptx = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{{\n.reg .pred %p<9>;\n.reg .b32 %r<9>;\n\
         mov.u32 %r1, %tid.x;\nsetp.lt.u32 %p1, %r1, 5;\n{body}\nret;\n}}\n"
    );
    let module = hetckpt_ptx::lower_module(&ptx).unwrap();
    assert!(module.rejected.is_empty(), "{:?}", module.rejected);
    generate(&module.kernels[0], &OpenClOptions::default()).unwrap_err()
}

#[test]
fn clocks() {
    let error = refusal("mov.u32 %r2, %clock;");
    assert_eq!(error.to_string(), "kernel `k`, line 10: OpenCL C has no form of %clock");
}

#[test]
fn barriers_of_part_of_the_block() {
    let error = refusal("bar.sync 1, 64;");
    assert!(
        matches!(&error, Error::PartialBarrier { span, .. } if span.line == 10),
        "{error}"
    );
}

/// They may be one barrier, at which both sides wait for each other.
#[test]
fn barriers_on_both_sides_of_a_branch() {
    let error = refusal("@%p1 bra A;\nbar.sync 0;\nbra B;\nA:\nbar.sync 0;\nB:");
    assert!(matches!(&error, Error::DivergentMeeting { .. }), "{error}");
}

#[test]
fn loops_with_two_entries_around_a_barrier() {
    let error = refusal(
        "mov.u32 %r3, %ntid.x;\nsetp.lt.u32 %p2, %r3, 9;\nmov.u32 %r2, 0;\n@%p2 bra B;\nA:\nadd.u32 %r2, %r2, 1;\nB:\n\
         bar.sync 0;\nadd.u32 %r2, %r2, 2;\nsetp.lt.u32 %p3, %r2, 50;\n@%p3 bra A;",
    );
    assert!(matches!(error, Error::Irreducible { .. }), "{error}");
}
