//! Names of a module: its variables and functions.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::ast;
use crate::error::Reason;
use crate::lower::barrier_numbers::BarrierNumbers;
use crate::lower::functions;

/// What names mean outside of functions.
pub(crate) struct ModuleNames<'m, 'a> {
    /// Module-level variables by name.
    pub(crate) variables: HashMap<&'a str, &'m ast::Variable<'a>>,
    /// Functions by name; the one with a body where there is one.
    pub(crate) functions: HashMap<&'a str, &'m ast::Function<'a>>,
    /// Names of the functions that calls by address may mean, by their addresses.
    pub(crate) by_address: BTreeMap<u64, &'a str>,
    /// Variables and functions whose declarations cannot be read or laid out, and why.
    pub(crate) broken: HashMap<&'a str, String>,
    /// Functions that may call themselves, and some that may call these and be called by others of them.
    pub(crate) recursive: HashSet<&'a str>,
    /// What a call of `vprintf` reads from the address that it gets, bytes.
    pub(crate) printf_bytes: u32,
    /// Barriers of all functions that are no kernels.
    pub(crate) barriers: BarrierNumbers,
}

impl<'m, 'a> ModuleNames<'m, 'a> {
    /// The names that `ast` declares.
    pub(crate) fn new(ast: &'m ast::Module<'a>, printf_bytes: u32) -> Self {
        let mut names = Self {
            variables: HashMap::new(),
            functions: HashMap::new(),
            by_address: functions::taken(ast),
            broken: ast.broken.iter().map(|b| (b.name, b.error.to_string())).collect(),
            recursive: functions::recursive(ast),
            printf_bytes,
            barriers: BarrierNumbers::default(),
        };
        for variable in &ast.variables {
            // A definition wins over an `.extern` declaration of the same name.
            let slot = names.variables.entry(variable.name).or_insert(variable);
            if slot.is_extern {
                *slot = variable;
            }
        }
        for function in &ast.functions {
            if let (Some(body), false) = (&function.body, function.is_entry) {
                names.barriers = names.barriers.and(BarrierNumbers::of(body));
            }
            let slot = names.functions.entry(function.name).or_insert(function);
            if slot.body.is_none() {
                *slot = function;
            }
        }
        names
    }

    /// An error if what `name` stands for in the module cannot be used.
    pub(crate) fn check(&self, name: &str) -> Result<(), Reason> {
        match self.broken.get(name) {
            None => Ok(()),
            Some(why) => Err(Reason::Declaration {
                name: name.to_owned(),
                why: why.clone(),
            }),
        }
    }
}
