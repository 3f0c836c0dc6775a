//! Typed ids of the things inside a kernel. They print as the text form writes them: `bb3`, `%r12`, `rp0`.

use std::fmt;

/// Registers, basic blocks or resume points that a kernel may have; the validator refuses more.
pub const MAX_ENTITIES: usize = u32::MAX as usize;

macro_rules! entity {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The id of what lies at `index` in the arena; of an index that no kernel may have ([`MAX_ENTITIES`]), an
            /// id that nothing has.
            #[must_use]
            pub const fn from_index(index: usize) -> Self {
                if index < MAX_ENTITIES {
                    Self(index as u32)
                } else {
                    Self(u32::MAX)
                }
            }

            /// The id as an index into the arena it belongs to.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

entity!(
    /// A virtual register of one kernel; its width is `kernel.registers[id.index()]`.
    RegId,
    "%r"
);
entity!(
    /// A basic block of one kernel; `bb0` is the entry.
    BbId,
    "bb"
);
entity!(
    /// A resume point of one kernel: a program point from which a stopped thread can go on. `rp0` is the entry.
    ResumePointId,
    "rp"
);

/// Where something came from: a line of the PTX text, counted from 1; 0 where there is none (inserted code).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// Line of the PTX text, from 1.
    pub line: u32,
}
