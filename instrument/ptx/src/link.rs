//! Functions of another text of the program. Calls are expanded where they stand, so their bodies have to be at hand.

use std::collections::HashSet;

use crate::ast::{DeclSpace, Module};

/// True if functions are declared that have no body here.
pub(crate) fn lacks_functions(module: &Module<'_>) -> bool {
    let defined: HashSet<&str> = defined_functions(module).collect();
    let declared = module.functions.iter().filter(|f| !f.is_entry && f.body.is_none());
    declared.map(|f| f.name).any(|name| !defined.contains(name))
}

fn defined_functions<'m, 'a>(module: &'m Module<'a>) -> impl Iterator<Item = &'a str> + use<'m, 'a> {
    let has_body = module.functions.iter().filter(|f| !f.is_entry && f.body.is_some());
    has_body.map(|f| f.name)
}

/// True if a function of this name is declared, and has a body nowhere.
pub(crate) fn lacks_function(module: &Module<'_>, name: &str) -> bool {
    let mut named = module.functions.iter().filter(|f| f.name == name).peekable();
    named.peek().is_some() && named.all(|f| f.body.is_none())
}

/// Names of functions and variables that are defined.
fn definitions<'m, 'a>(module: &'m Module<'a>) -> impl Iterator<Item = &'a str> + use<'m, 'a> {
    let variables = module.variables.iter().filter(|v| !v.is_extern).map(|v| v.name);
    defined_functions(module).chain(variables)
}

/// Takes the functions of `other`, and declares the variables that they may use. If both texts define something of one
/// name, that name would come to mean the wrong one: then nothing is taken.
pub(crate) fn take_functions<'a>(module: &mut Module<'a>, other: Module<'a>) {
    let own: HashSet<&str> = definitions(module).collect();
    if definitions(&other).any(|name| own.contains(name)) {
        return;
    }
    let functions = other.functions.into_iter().filter(|f| !f.is_entry);
    module.functions.extend(functions);
    for mut variable in other.variables {
        if matches!(variable.space, DeclSpace::Global | DeclSpace::Const) {
            // Who defines it also fills it.
            variable.is_extern = true;
            variable.init = None;
        }
        module.variables.push(variable);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use crate::{lower_linked, lower_module};

    const KERNEL: &str = ".version 8.0\n.target sm_80\n.address_size 64
.extern .func (.param .b32 result) twice(.param .b32 x);
.visible .entry k(.param .u64 p) {
    .reg .b32 %r<3>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [p];
    ld.global.u32 %r1, [%rd1];
    { .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call.uni (b), twice, (a); ld.param.b32 %r2, [b]; }
    st.global.u32 [%rd1], %r2;
    ret;
}";
    const FUNCTION: &str = ".version 8.0\n.target sm_80\n.address_size 64
.visible .global .u32 times = 2;
.visible .func (.param .b32 result) twice(.param .b32 x) {
    .reg .b32 %r<4>;
    ld.param.b32 %r1, [x];
    ld.global.u32 %r2, [times];
    mul.lo.u32 %r3, %r1, %r2;
    st.param.b32 [result], %r3;
    ret;
}";

    #[test]
    fn functions_come_from_other_texts() {
        assert_eq!(lower_module(KERNEL).unwrap().rejected.len(), 1);
        for texts in [[KERNEL, FUNCTION], [FUNCTION, KERNEL]] {
            let modules = lower_linked(&texts).unwrap();
            let kernels: Vec<_> = modules.iter().flat_map(|m| &m.kernels).collect();
            assert_eq!(
                kernels.len(),
                1,
                "{:?}",
                modules.iter().flat_map(|m| &m.rejected).collect::<Vec<_>>()
            );
            let globals = modules.iter().flat_map(|m| &m.globals);
            assert_eq!(globals.filter(|g| g.name == "times" && !g.is_extern).count(), 1);
        }
    }

    #[test]
    fn a_name_that_means_two_things_is_not_taken() {
        let other = ".func helper() { ret; }\n";
        for (own, function) in [
            (".global .u32 times = 3;\n", FUNCTION.to_owned()),
            (
                other,
                FUNCTION.replace(".visible .func", &format!("{other}.visible .func")),
            ),
        ] {
            let kernel = KERNEL.replace(".visible .entry", &format!("{own}.visible .entry"));
            let modules = lower_linked(&[&kernel, &function]).unwrap();
            assert_eq!((modules[0].kernels.len(), modules[0].rejected.len()), (0, 1), "{own}");
        }
    }
}
