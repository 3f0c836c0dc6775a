//! Random kernels in PTX, for whole grids: instruction forms of the list under nested branches and loops, barriers,
//! exchanges through shared memory with barriers and in step, calls (direct, by address, to themselves), branches by
//! tables, addresses of no known space, atomics, textures and surfaces, memory of the heap, barriers of the grid.
//!
//! What a kernel leaves in memory depends on its operands alone, in whatever order its threads run.

use std::fmt::Write as _;

use crate::form_scope::{Around, Form, OneNan, Together, scope};
use crate::ptx_forms::Table;
use crate::random::Random;
use crate::random_memory::{
    BLOCKS, COUNTED, COUNTERS, EXCHANGED, GRID_THREADS, OPERAND_BYTES, SLOT_BYTES, SLOTS, THREADS, VALUES, image,
};

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

/// What kernels that have a heap declare.
const HEAP: &str = "\
.extern .func (.param .b64 r) malloc(.param .b64 n);
.extern .func free(.param .b64 p);
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
    features: Features,
    /// How many more functions of some hundred instructions there may be: compilers of OpenCL C take minutes for more.
    large_functions: u32,
}

/// What some kernels have, and some devices have not.
#[derive(Clone, Copy, Debug)]
pub struct Features {
    /// Textures and surfaces, by their descriptions in memory.
    pub images: bool,
    /// `malloc` and `free`.
    pub heap: bool,
    /// Barriers of the grid: its blocks are to be resident together.
    pub grid_barriers: bool,
}

/// Those of the kernel of this number.
#[must_use]
pub const fn features(seed: u64) -> Features {
    Features {
        images: seed.is_multiple_of(5),
        heap: seed % 5 <= 2,
        grid_barriers: matches!(seed % 7, 0 | 1),
    }
}

/// Who comes to a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Company {
    /// All threads of the grid.
    Grid,
    /// All of the block.
    Block,
    /// Perhaps not all of a warp.
    Some,
}

impl Company {
    fn is_block(self) -> bool {
        self != Self::Some
    }
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
        features: features(seed),
        large_functions: 1,
    };
    if !builder.has_all_barriers {
        builder
            .together
            .retain(|form| form.together != Together::Block || form.text.contains(" 0"));
    }
    if builder.features.heap {
        // Who comes out of `malloc` together depends on who was disturbed by others.
        builder.together.retain(|form| !form.text.contains("activemask"));
    }
    let has_large_functions = builder.features.images || builder.features.heap;
    let (least, more) = if has_large_functions { (2, 4) } else { (4, 8) };
    for _ in 0..least + builder.pick(more) {
        builder.statement(2, Company::Grid);
    }
    let mut stores = String::new();
    for value in 0..VALUES {
        writeln!(stores, "st.global.b64 [%results+{}], %a{value};", 8 * value).unwrap();
    }
    format!(
        ".version 9.0\n.target sm_90\n.address_size 64\n{heap}{FUNCTIONS}\
         .visible .entry k(.param .u64 a, .param .u64 b, .param .u64 n)\n{{\n\
         .shared .align 32 .b8 slots[{shared}];\n.shared .align 8 .b64 exchanged[{THREADS}];\n\
         .shared .align 8 .b64 stepped[{THREADS}];\n.shared .align 8 .b64 arrived;\n\
         .local .align 32 .b8 own[{SLOT_BYTES}];\n.local .align 8 .b64 array[4];\n\
         .reg .b64 %a<{VALUES}>, %result, %results, %read, %global, %shared, %local, %counters, %rounds, %output;\n\
         .reg .b32 %thread, %block, %number;\n.reg .pred %is_first;\n\
         ld.param.u64 %read, [a];\nld.param.u64 %results, [b];\nld.param.u64 %rounds, [n];\n\
         mov.u32 %thread, %tid.x;\nmov.u32 %block, %ctaid.x;\nmad.lo.u32 %number, %block, {THREADS}, %thread;\n\
         add.u64 %counters, %results, {COUNTED};\nadd.u64 %global, %results, {SLOTS};\n\
         mov.u64 %output, %results;\n\
         mad.wide.u32 %global, %number, {SLOT_BYTES}, %global;\nmad.wide.u32 %read, %number, {OPERAND_BYTES}, %read;\n\
         mad.wide.u32 %results, %number, {bytes}, %results;\n\
         mov.u64 %shared, slots;\nmad.wide.u32 %shared, %thread, {SLOT_BYTES}, %shared;\nmov.u64 %local, own;\n\
         ld.global.v2.b64 {{%a0, %a1}}, [%read];\nld.global.v2.b64 {{%a2, %a3}}, [%read+16];\n\
         xor.b64 %a4, %a0, %a3;\ncvt.u64.u32 %a5, %number;\n\
         st.local.b64 [array], %a0;\nst.local.b64 [array+8], %a1;\nst.local.b64 [array+16], %a2;\n\
         st.local.b64 [array+24], %a3;\n\
         {prepared}AGAIN:\n{statements}\
         sub.u64 %rounds, %rounds, 1;\nsetp.ne.u64 %is_first, %rounds, 0;\n@%is_first bra AGAIN;\n{stores}ret;\n}}\n",
        heap = if builder.features.heap { HEAP } else { "" },
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

    fn statement(&mut self, depth: u32, company: Company) {
        match self.pick(if depth == 0 { 20 } else { 28 }) {
            0..=6 => self.form(false),
            7 | 8 => self.form(company.is_block()),
            9 if company.is_block() => self.exchange(),
            10 if company.is_block() && self.has_steps => self.exchange_in_step(),
            11 if company.is_block() && self.has_all_barriers => self.barriers(),
            12 if company == Company::Grid && self.features.grid_barriers => self.exchange_in_grid(),
            13 | 14 if self.features.images && self.has_room() => self.image(),
            9..=14 => self.count(),
            15 => self.call(),
            16 => self.call_by_address(),
            17 => self.call_deep(),
            18 => self.local_array(),
            19 => self.generic_address(),
            20 | 21 => self.branch(depth - 1, company),
            22 => self.branch_by_table(depth - 1),
            23 | 24 => self.repeat(depth - 1, company),
            25 | 26 if self.features.heap && self.has_room() => self.allocate(depth - 1, company),
            _ => self.repeat(depth - 1, Company::Some),
        }
    }

    const fn has_room(&mut self) -> bool {
        let has_room = self.large_functions > 0;
        self.large_functions = self.large_functions.saturating_sub(1);
        has_room
    }

    fn statements(&mut self, depth: u32, company: Company) {
        for _ in 0..=self.pick(2) {
            self.statement(depth, company);
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
        let [arrives, behind] = [(); 2].map(|()| self.label());
        let text = match self.pick(4) {
            0 => "bar.sync 1;".to_owned(),
            // Who only arrives must not come again before the others have.
            3 => format!(
                "{{ .reg .pred %q; setp.lt.u32 %q, %thread, 32; @!%q bra {arrives}; bar.sync 3, 64; bra {behind}; \
                 {arrives}: bar.arrive 3, 64; {behind}: bar.sync 1; }}"
            ),
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

    /// Through memory, with a thread of the next block.
    fn exchange_in_grid(&mut self) {
        let [from, into] = [(); 2].map(|()| self.value());
        let meet = [(); 2].map(|()| self.grid_barrier());
        self.line(&format!(
            "{{ .reg .b32 %s; .reg .b64 %x, %at<2>; add.u64 %at0, %output, {EXCHANGED}; add.u32 %s, %number, {THREADS}; \
             rem.u32 %s, %s, {GRID_THREADS}; mad.wide.u32 %at1, %s, 8, %at0; mad.wide.u32 %at0, %number, 8, %at0; \
             st.global.b64 [%at0], {from}; {} ld.global.b64 %x, [%at1]; {} xor.b64 {into}, {into}, %x; }}",
            meet[0], meet[1]
        ));
    }

    /// As cooperative groups have it (`grid_group::sync`).
    fn grid_barrier(&mut self) -> String {
        let [wait, done] = [(); 2].map(|()| self.label());
        format!(
            "{{ .reg .b32 %e<6>; .reg .b64 %w; .reg .pred %q; mov.u32 %e0, %envreg1; mov.u32 %e1, %envreg2; \
             mov.b64 %w, {{%e1, %e0}}; bar.sync 0; setp.ne.u32 %q, %thread, 0; @%q bra {done}; \
             setp.eq.u32 %q, %block, 0; selp.b32 %e2, {}, 1, %q; fence.acq_rel.gpu; \
             atom.global.add.u32 %e3, [%w+4], %e2; {wait}: ld.acquire.gpu.global.u32 %e4, [%w+4]; \
             xor.b32 %e5, %e4, %e3; setp.ge.s32 %q, %e5, 0; @%q bra {wait}; fence.acq_rel.gpu; {done}: bar.sync 0; }}",
            0x8000_0000 - (BLOCKS - 1)
        )
    }

    /// Reads the operands as pictures, or writes and reads a texel of the thread's own.
    fn image(&mut self) {
        let [from, into, by] = [(); 3].map(|()| self.value());
        let kind = self.pick(3);
        let number = u32::try_from(kind).unwrap();
        let access = match kind {
            0 => "mul.f32 %f0, %f0, 0f3C124925; mul.f32 %f1, %f1, 0f3D924925; tex.2d.v4.f32.f32 {%f2, %f3, %f4, %f5}, \
                  [%image, {%f0, %f1}]; mov.b64 %x, {%f2, %f3}; mov.b64 %y, {%f4, %f5};"
                .to_owned(),
            1 => "shr.u32 %r0, %r0, 7; tex.2d.v4.u32.s32 {%r2, %r3, %r4, %r5}, [%image, {%r0, %r1}]; \
                  mov.b64 %x, {%r2, %r4}; mov.b64 %y, {%r3, %r5};"
                .to_owned(),
            _ => {
                let column = 4 * self.pick(u64::from(SLOT_BYTES) / 4);
                format!(
                    "cvt.u32.u64 %r2, {from}; sust.b.2d.b32.trap [%image, {{{column}, %number}}], {{%r2}}; \
                     suld.b.2d.b32.zero {{%r3}}, [%image, {{{column}, %number}}]; cvt.u64.u32 %x, %r3; mov.u64 %y, 0;"
                )
            }
        };
        self.line(&format!(
            "{{ .reg .b64 %image, %x, %y; .reg .b32 %r<6>; .reg .f32 %f<6>; add.u64 %image, %output, {}; \
             mov.b64 {{%r0, %r1}}, {by}; and.b32 %r0, %r0, 1023; and.b32 %r1, %r1, 255; cvt.rn.f32.u32 %f0, %r0; \
             cvt.rn.f32.u32 %f1, %r1; {access} xor.b64 {into}, {into}, %x; add.u64 {into}, {into}, %y; }}",
            image(number)
        ));
    }

    /// Memory of the heap, which other statements lie between.
    fn allocate(&mut self, depth: u32, company: Company) {
        let [from, into] = [(); 2].map(|()| self.value());
        let (bytes, at) = (16 + self.pick(64), 8 * self.pick(2));
        self.line(&format!(
            "{{ .reg .b64 %memory, %x; {{ .param .b64 pn; .param .b64 pr; st.param.b64 [pn], {bytes}; \
             call (pr), malloc, (pn); ld.param.b64 %memory, [pr]; }} st.b64 [%memory+{at}], {from};"
        ));
        self.statements(depth, company);
        self.line(&format!(
            "ld.b64 %x, [%memory+{at}]; xor.b64 {into}, {into}, %x; \
             {{ .param .b64 pm; st.param.b64 [pm], %memory; call free, (pm); }} }}"
        ));
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

    fn branch(&mut self, depth: u32, company: Company) {
        let [no, join] = [(); 2].map(|()| self.label());
        let (test, inner) = if company.is_block() && self.pick(2) == 0 {
            (
                format!("setp.eq.u32 %q, %block, {}", self.pick(u64::from(BLOCKS))),
                Company::Block,
            )
        } else {
            let [a, b] = [(); 2].map(|()| self.value());
            (format!("setp.lt.s64 %q, {a}, {b}"), Company::Some)
        };
        self.line(&format!("{{ .reg .pred %q; {test}; @!%q bra {no};"));
        self.statements(depth, inner);
        self.line(&format!("bra {join};\n{no}:"));
        self.statements(depth, inner);
        self.line(&format!("{join}: mov.b64 %a0, %a0; }}"));
    }

    fn branch_by_table(&mut self, depth: u32) {
        let [a, b, join, table] = [(); 4].map(|()| self.label());
        let by = self.value();
        self.line(&format!(
            "{{ .reg .b32 %i; cvt.u32.u64 %i, {by}; rem.u32 %i, %i, 3; {table}: .branchtargets {a}, {b}, {join}; \
             brx.idx %i, {table};\n{a}:"
        ));
        self.statements(depth, Company::Some);
        self.line(&format!("bra {join};\n{b}:"));
        self.statements(depth, Company::Some);
        self.line(&format!("{join}: mov.b64 %a0, %a0; }}"));
    }

    fn repeat(&mut self, depth: u32, company: Company) {
        let head = self.label();
        let limit = if company.is_block() {
            format!("mov.u32 %limit, {}", 1 + self.pick(3))
        } else {
            let by = self.value();
            format!("cvt.u32.u64 %limit, {by}; and.b32 %limit, %limit, 3; add.u32 %limit, %limit, 1")
        };
        self.line(&format!(
            "{{ .reg .b32 %i, %limit; .reg .pred %q; {limit}; mov.u32 %i, 0;\n{head}:"
        ));
        self.statements(depth, company);
        self.line(&format!(
            "add.u32 %i, %i, 1; setp.lt.u32 %q, %i, %limit; @%q bra {head}; }}"
        ));
    }
}
