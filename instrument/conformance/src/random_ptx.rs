//! Random kernels in PTX, for whole grids: instruction forms of the list under nested branches and loops, barriers,
//! exchanges through shared memory with barriers and in step, calls (direct, by address, to themselves), branches by
//! tables, addresses of no known space, atomics.
//!
//! What a kernel leaves in memory depends on its operands alone, in whatever order its threads run.

use std::fmt::Write as _;

use crate::form_scope::{Around, Form, OneNan, SLOT_BYTES, Together, scope};
use crate::ptx_forms::Table;
use crate::random::Random;

/// Blocks of the grid.
pub const BLOCKS: u32 = 3;
/// Threads of a block: two warps.
pub const THREADS: u32 = 64;
/// Bytes of operands of a thread.
pub const OPERAND_BYTES: u32 = 32;
/// 64-bit values that statements compute on, `%a0`…; they are the results.
const VALUES: u32 = 6;
/// 64-bit words that all threads add to.
const COUNTERS: u32 = 16;

/// Bytes of operands, of any content.
#[must_use]
pub fn operand_bytes() -> u32 {
    BLOCKS * THREADS * OPERAND_BYTES
}

/// Bytes of output, zero before: results, memory that forms work on, counters.
#[must_use]
pub fn output_bytes() -> u32 {
    BLOCKS * THREADS * (8 * VALUES + SLOT_BYTES) + 8 * COUNTERS
}

/// Functions that kernels call.
const FUNCTIONS: &str = "\
.func (.param .b64 r) twist(.param .b64 x) { .reg .b64 %d<3>; ld.param.b64 %d0, [x]; shl.b64 %d1, %d0, 7; \
shr.u64 %d2, %d0, 57; or.b64 %d1, %d1, %d2; st.param.b64 [r], %d1; ret; }
.func (.param .b64 r) turn(.param .b64 x) { .reg .b64 %d<2>; ld.param.b64 %d0, [x]; mul.lo.u64 %d1, %d0, 0x5851f42d4c957f2d; \
st.param.b64 [r], %d1; ret; }
.func (.param .b64 r) deep(.param .b64 x, .param .b32 n) { .reg .b64 %d<5>; .reg .b32 %n; .reg .pred %p; .local .b64 kept; \
ld.param.b64 %d0, [x]; ld.param.b32 %n, [n]; mul.lo.u64 %d1, %d0, 0x2545f4914f6cdd1d; setp.eq.u32 %p, %n, 0; @%p bra LEAF; \
st.local.b64 [kept], %d1; sub.u32 %n, %n, 1; \
{ .param .b64 px; .param .b32 pn; .param .b64 pr; st.param.b64 [px], %d1; st.param.b32 [pn], %n; \
call (pr), deep, (px, pn); ld.param.b64 %d2, [pr]; } \
ld.local.b64 %d3, [kept]; xor.b64 %d1, %d2, %d3; LEAF: st.param.b64 [r], %d1; ret; }
";

/// Makes the barrier object that [`Builder::barriers`] uses.
const PREPARED: &str =
    "setp.eq.u32 %is_first, %thread, 0;\n@%is_first mbarrier.init.shared.b64 [arrived], 64;\nbar.sync 0;\n";

struct Builder {
    random: Random,
    text: String,
    /// Forms for any thread by itself, and for warps and blocks.
    alone: Vec<Form>,
    together: Vec<Form>,
    labels: u32,
    /// Barriers with numbers and barrier objects, which OpenCL C has not.
    has_all_barriers: bool,
    /// Exchanges that count on a warp's lanes running in step, which a GPU does not promise behind branches.
    has_steps: bool,
}

/// True if the kernel of this number counts on a warp's lanes running in step.
#[must_use]
pub fn has_steps(seed: u64) -> bool {
    seed.is_multiple_of(2)
}

/// A module with a kernel `k` of three parameters of 64 bits: the addresses of operands and of output, and how often it
/// does all that it does.
#[must_use]
pub fn module(seed: u64) -> String {
    let patterns = Table::read().patterns;
    let forms = patterns.iter().flat_map(crate::ptx_forms::Pattern::comparable);
    let forms = forms.filter(|form| !form.is_approximate);
    let (alone, together) = forms.partition(|form| form.together == Together::Thread);
    let mut builder = Builder {
        random: Random::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
        text: String::new(),
        alone,
        together,
        labels: 0,
        has_all_barriers: seed.is_multiple_of(3),
        has_steps: has_steps(seed),
    };
    if !builder.has_all_barriers {
        builder
            .together
            .retain(|form| form.together != Together::Block || form.text.contains(" 0"));
    }
    for _ in 0..4 + builder.pick(8) {
        builder.statement(2, true);
    }
    let results = BLOCKS * THREADS * 8 * VALUES;
    let counters = results + BLOCKS * THREADS * SLOT_BYTES;
    let mut stores = String::new();
    for value in 0..VALUES {
        writeln!(stores, "st.global.b64 [%results+{}], %a{value};", 8 * value).unwrap();
    }
    format!(
        ".version 9.0\n.target sm_90\n.address_size 64\n{FUNCTIONS}\
         .visible .entry k(.param .u64 a, .param .u64 b, .param .u64 n)\n{{\n\
         .shared .align 32 .b8 slots[{shared}];\n.shared .align 8 .b64 exchanged[{THREADS}];\n\
         .shared .align 8 .b64 stepped[{THREADS}];\n.shared .align 8 .b64 arrived;\n\
         .local .align 32 .b8 own[{SLOT_BYTES}];\n.local .align 8 .b64 array[4];\n\
         .reg .b64 %a<{VALUES}>, %result, %results, %read, %global, %shared, %local, %counters, %rounds;\n\
         .reg .b32 %thread, %block, %number;\n.reg .pred %is_first;\n\
         ld.param.u64 %read, [a];\nld.param.u64 %results, [b];\nld.param.u64 %rounds, [n];\n\
         mov.u32 %thread, %tid.x;\nmov.u32 %block, %ctaid.x;\nmad.lo.u32 %number, %block, {THREADS}, %thread;\n\
         add.u64 %counters, %results, {counters};\nadd.u64 %global, %results, {results};\n\
         mad.wide.u32 %global, %number, {SLOT_BYTES}, %global;\nmad.wide.u32 %read, %number, {OPERAND_BYTES}, %read;\n\
         mad.wide.u32 %results, %number, {bytes}, %results;\n\
         mov.u64 %shared, slots;\nmad.wide.u32 %shared, %thread, {SLOT_BYTES}, %shared;\nmov.u64 %local, own;\n\
         ld.global.v2.b64 {{%a0, %a1}}, [%read];\nld.global.v2.b64 {{%a2, %a3}}, [%read+16];\n\
         xor.b64 %a4, %a0, %a3;\ncvt.u64.u32 %a5, %number;\n\
         st.local.b64 [array], %a0;\nst.local.b64 [array+8], %a1;\nst.local.b64 [array+16], %a2;\n\
         st.local.b64 [array+24], %a3;\n\
         {prepared}AGAIN:\n{statements}\
         sub.u64 %rounds, %rounds, 1;\nsetp.ne.u64 %is_first, %rounds, 0;\n@%is_first bra AGAIN;\n{stores}ret;\n}}\n",
        shared = THREADS * SLOT_BYTES,
        bytes = 8 * VALUES,
        prepared = if builder.has_all_barriers { PREPARED } else { "" },
        statements = builder.text,
    )
}

impl Builder {
    const fn pick(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }

    fn value(&mut self) -> String {
        format!("%a{}", self.pick(u64::from(VALUES)))
    }

    fn label(&mut self) -> String {
        self.labels += 1;
        format!("L{}", self.labels)
    }

    fn line(&mut self, text: &str) {
        self.text += text;
        self.text.push('\n');
    }

    /// `is_uniform`: all threads of the block come here.
    fn statement(&mut self, depth: u32, is_uniform: bool) {
        match self.pick(if depth == 0 { 17 } else { 24 }) {
            0..=6 => self.form(false),
            7 | 8 if is_uniform => self.form(true),
            7 | 8 => self.form(false),
            9 if is_uniform => self.exchange(),
            10 if is_uniform && self.has_steps => self.exchange_in_step(),
            11 if is_uniform && self.has_all_barriers => self.barriers(),
            9..=11 => self.count(),
            12 => self.call(),
            13 => self.call_by_address(),
            14 => self.call_deep(),
            15 => self.local_array(),
            16 => self.generic_address(),
            17 | 18 => self.branch(depth - 1, is_uniform),
            19 => self.branch_by_table(depth - 1),
            20 | 21 => self.repeat(depth - 1, is_uniform),
            _ => self.repeat(depth - 1, false),
        }
    }

    fn statements(&mut self, depth: u32, is_uniform: bool) {
        for _ in 0..=self.pick(2) {
            self.statement(depth, is_uniform);
        }
    }

    fn form(&mut self, together: bool) {
        let forms = if together { &self.together } else { &self.alone };
        let (count, [a, b, c, into]) = (forms.len() as u64, [(); 4].map(|()| self.value()));
        let at = usize::try_from(self.pick(count)).unwrap();
        let form = if together { &self.together[at] } else { &self.alone[at] };
        let around = Around {
            words: [&a, &b, &c],
            result: "%result",
            read: "%read",
            global: "%global",
            shared: "%shared",
            local: "%local",
        };
        let text = scope(form, &around, OneNan::OfAll);
        self.text += &text;
        self.line(&format!(
            "mul.lo.u64 {into}, {into}, 0xd1342543de82ef95; xor.b64 {into}, {into}, %result;"
        ));
    }

    fn exchange(&mut self) {
        let ([from, into], by) = ([(); 2].map(|()| self.value()), 1 + self.pick(u64::from(THREADS) - 1));
        self.line(&format!(
            "{{ .reg .b32 %s<3>; .reg .b64 %x; mov.u32 %s0, exchanged; mad.lo.u32 %s1, %thread, 8, %s0; \
             add.u32 %s2, %thread, {by}; and.b32 %s2, %s2, {}; mad.lo.u32 %s2, %s2, 8, %s0; bar.sync 0; \
             st.shared.b64 [%s1], {from}; bar.sync 0; ld.shared.b64 %x, [%s2]; xor.b64 {into}, {into}, %x; }}",
            THREADS - 1
        ));
    }

    fn exchange_in_step(&mut self) {
        let ([from, into], with) = ([(); 2].map(|()| self.value()), 1 + self.pick(31));
        self.line(&format!(
            "{{ .reg .b32 %s<3>; .reg .b64 %x; mov.u32 %s0, stepped; mad.lo.u32 %s1, %thread, 8, %s0; \
             xor.b32 %s2, %thread, {with}; mad.lo.u32 %s2, %s2, 8, %s0; bar.sync 0; \
             st.volatile.shared.b64 [%s1], {from}; ld.volatile.shared.b64 %x, [%s2]; xor.b64 {into}, {into}, %x; }}"
        ));
    }

    fn barriers(&mut self) {
        let [wait, on] = [(); 2].map(|()| self.label());
        let text = match self.pick(3) {
            0 => "bar.sync 1;".to_owned(),
            1 => format!(
                "{{ .reg .pred %q; setp.lt.u32 %q, %thread, 32; @!%q bra {on}; bar.sync 2, 32; {on}: \
                 mov.b64 %a0, %a0; }}"
            ),
            _ => format!(
                "{{ .reg .b64 %t; .reg .pred %q; mbarrier.arrive.shared.b64 %t, [arrived]; {wait}: \
                 mbarrier.try_wait.shared.b64 %q, [arrived], %t; @!%q bra {wait}; }}"
            ),
        };
        self.line(&text);
    }

    fn count(&mut self) {
        let (value, at) = (self.value(), 8 * self.pick(u64::from(COUNTERS) / 4));
        let (op, counter) =
            [("add.u64", 0), ("xor.b64", 32), ("max.u64", 64), ("min.s64", 96)][usize::try_from(self.pick(4)).unwrap()];
        self.line(&format!("red.global.{op} [%counters+{}], {value};", at + counter));
    }

    fn call(&mut self) {
        let ([from, into], turns) = ([(); 2].map(|()| self.value()), self.pick(2) == 0);
        let function = if turns { "turn" } else { "twist" };
        self.line(&format!(
            "{{ .param .b64 px; .param .b64 pr; .reg .b64 %x; st.param.b64 [px], {from}; call (pr), {function}, (px); \
             ld.param.b64 %x, [pr]; xor.b64 {into}, {into}, %x; }}"
        ));
    }

    fn call_by_address(&mut self) {
        let [from, into, by] = [(); 3].map(|()| self.value());
        let prototype = self.label();
        self.line(&format!(
            "{{ .param .b64 px; .param .b64 pr; .reg .b64 %x, %f, %g; .reg .pred %q; mov.u64 %f, twist; mov.u64 %g, turn; \
             setp.lt.s64 %q, {by}, 0; selp.b64 %f, %f, %g, %q; st.param.b64 [px], {from}; \
             {prototype}: .callprototype (.param .b64 _) _ (.param .b64 _); call (pr), %f, (px), {prototype}; \
             ld.param.b64 %x, [pr]; xor.b64 {into}, {into}, %x; }}"
        ));
    }

    fn call_deep(&mut self) {
        let [from, into, by] = [(); 3].map(|()| self.value());
        self.line(&format!(
            "{{ .param .b64 px; .param .b32 pn; .param .b64 pr; .reg .b64 %x; .reg .b32 %n; cvt.u32.u64 %n, {by}; \
             and.b32 %n, %n, 3; st.param.b64 [px], {from}; st.param.b32 [pn], %n; call (pr), deep, (px, pn); \
             ld.param.b64 %x, [pr]; xor.b64 {into}, {into}, %x; }}"
        ));
    }

    fn local_array(&mut self) {
        let [from, into, by] = [(); 3].map(|()| self.value());
        self.line(&format!(
            "{{ .reg .b64 %x, %at<3>; and.b64 %at0, {by}, 3; shl.b64 %at0, %at0, 3; mov.u64 %at2, array; \
             shr.u64 %at1, {by}, 29; and.b64 %at1, %at1, 24; add.u64 %at0, %at0, %at2; add.u64 %at1, %at1, %at2; \
             ld.local.b64 %x, [%at1]; st.local.b64 [%at0], {from}; xor.b64 {into}, {into}, %x; }}"
        ));
    }

    /// An address of one of three spaces, which in every other one of these goes through memory.
    fn generic_address(&mut self) {
        let [from, into, by] = [(); 3].map(|()| self.value());
        let through = if self.pick(2) == 0 {
            "st.local.b64 [array+8], %at0; ld.local.b64 %at0, [array+8]; st.local.b64 [array+8], %at0; \
             ld.local.b64 %at3, [array+8]; st.local.b64 [array+8], 5; mov.b64 %at0, %at3; "
        } else {
            ""
        };
        self.line(&format!(
            "{{ .reg .b64 %x, %at<4>; .reg .pred %q<2>; cvta.shared.u64 %at0, %shared; cvta.local.u64 %at1, %local; \
             setp.lt.s64 %q0, {by}, 0; selp.b64 %at0, %at0, %at1, %q0; and.b64 %at2, {by}, 3; setp.eq.s64 %q1, %at2, 1; \
             selp.b64 %at0, %global, %at0, %q1; {through}st.b64 [%at0+8], {from}; ld.b64 %x, [%at0+8]; \
             add.u64 {into}, {into}, %x; }}"
        ));
    }

    fn branch(&mut self, depth: u32, is_uniform: bool) {
        let [no, join] = [(); 2].map(|()| self.label());
        let (test, stays_uniform) = if is_uniform && self.pick(2) == 0 {
            (
                format!("setp.eq.u32 %q, %block, {}", self.pick(u64::from(BLOCKS))),
                true,
            )
        } else {
            let [a, b] = [(); 2].map(|()| self.value());
            (format!("setp.lt.s64 %q, {a}, {b}"), false)
        };
        self.line(&format!("{{ .reg .pred %q; {test}; @!%q bra {no};"));
        self.statements(depth, stays_uniform);
        self.line(&format!("bra {join};\n{no}:"));
        self.statements(depth, stays_uniform);
        self.line(&format!("{join}: mov.b64 %a0, %a0; }}"));
    }

    fn branch_by_table(&mut self, depth: u32) {
        let [a, b, join, table] = [(); 4].map(|()| self.label());
        let by = self.value();
        self.line(&format!(
            "{{ .reg .b32 %i; cvt.u32.u64 %i, {by}; rem.u32 %i, %i, 3; {table}: .branchtargets {a}, {b}, {join}; \
             brx.idx %i, {table};\n{a}:"
        ));
        self.statements(depth, false);
        self.line(&format!("bra {join};\n{b}:"));
        self.statements(depth, false);
        self.line(&format!("{join}: mov.b64 %a0, %a0; }}"));
    }

    fn repeat(&mut self, depth: u32, is_uniform: bool) {
        let head = self.label();
        let limit = if is_uniform {
            format!("mov.u32 %limit, {}", 1 + self.pick(3))
        } else {
            let by = self.value();
            format!("cvt.u32.u64 %limit, {by}; and.b32 %limit, %limit, 3; add.u32 %limit, %limit, 1")
        };
        self.line(&format!(
            "{{ .reg .b32 %i, %limit; .reg .pred %q; {limit}; mov.u32 %i, 0;\n{head}:"
        ));
        self.statements(depth, is_uniform);
        self.line(&format!(
            "add.u32 %i, %i, 1; setp.lt.u32 %q, %i, %limit; @%q bra {head}; }}"
        ));
    }
}
