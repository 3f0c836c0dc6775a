//! Tests that several crates run.
//!
//! * Kernels that any [`Implementation`] runs, instruction by instruction, against the reference interpreter:
//!   [`tests!`] makes tests of them.
//! * Kernels for one thread ([`random_kernels`]) and what runs them between two probes ([`one_thread`]), for the passes
//!   that change control flow.
//! * The instruction forms of PTX ([`ptx_forms`]).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "tests"
)]
#![allow(missing_docs, reason = "tests are named by what they find out")]

mod implementation;
mod reference;
mod bench;
mod operands;
mod integer;
mod float;
mod directed;
mod convert;
mod modifiers;
mod edges;
mod flushed;
mod predicate;
mod memory;
mod barriers_and_warps;
mod arrivals;
mod contended;
pub mod one_thread;
pub mod form_scope;
pub mod listed_forms;
pub mod ptx_forms;
mod random;
pub mod random_kernels;
pub mod random_memory;
pub mod random_ptx;

pub use implementation::{Implementation, Shape};
pub use reference::interpret;

/// Lists the groups of tests and makes [`tests!`] of them.
macro_rules! groups {
    ($d:tt $($group:ident { $($test:ident),+ $(,)? })+) => {
        #[doc(hidden)]
        pub mod groups {
            $(pub mod $group { pub use crate::$group::{$($test),+}; })+
        }

        /// `tests!(IMPLEMENTATION, GROUP, …)` makes a module of `#[test]`s of each group. `IMPLEMENTATION` is a
        /// constant expression whose type is an [`Implementation`].
        #[macro_export]
        macro_rules! tests {
            ($d tested:expr $d(,)?) => {};
            $(
                ($d tested:expr, $group $d(, $d others:ident)* $d(,)?) => {
                    mod $group {
                        use super::*;
                        $(#[test] fn $test() { $d crate::groups::$group::$test(&$d tested); })+
                    }
                    $d crate::tests!($d tested $d(, $d others)*);
                };
            )+
        }
    };
}

groups! { $
    integer {
        integer_arithmetic,
        logic_and_bit_fields,
    }
    float {
        floating_point,
        half_precision,
        approximate_functions,
    }
    directed {
        doubles_of_all_sizes_in_a_direction,
    }
    convert {
        conversions,
        packing_and_special_registers,
    }
    modifiers {
        conversions_of_bf16,
        conversions_that_flush,
        conversions_that_clamp,
        comparisons_of_bf16_and_such_that_flush,
        halves_that_flush_and_clamp,
    }
    edges {
        results_below_the_smallest_normal_number_in_full_precision_are_flushed,
        sums_below_the_smallest_normal_number_in_full_precision_are_flushed,
        halves_below_the_smallest_normal_number_in_full_precision_are_flushed,
        approximate_quotients_of_huge_divisors_are_zero,
        gross_reciprocals_of_doubles_have_a_high_word_only,
        sine_and_cosine_of_large_and_subnormal_operands,
        logarithms_near_one,
        what_is_not_a_number_is_canonical_only_where_it_was_calculated,
    }
    flushed {
        sums_within_the_last_bits_below_the_smallest_normal_number,
        reciprocals_next_to_the_smallest_normal_number,
        pairs_of_halves_below_the_smallest_normal_number_in_full_precision,
    }
    predicate {
        comparisons,
        predicates,
    }
    memory {
        atomics,
        compare_and_swap_of_half_words,
        loads_and_stores,
    }
    barriers_and_warps {
        reductions_at_barriers,
        shuffles,
        votes_matches_and_reductions_of_warps,
        control_flow,
        threads_that_end_early,
        warps_that_go_their_own_way,
        masks_of_some_lanes,
        both_sides_of_a_branch,
        lanes_that_ask_who_is_there,
    }
    arrivals {
        barriers_that_only_some_wait_at,
    }
    listed_forms {
        listed_forms,
        small_bf16_in_a_loop,
    }
    contended {
        contended_atomics_in_global_memory_lose_no_update,
        contended_atomics_in_shared_memory_lose_no_update,
    }
}
