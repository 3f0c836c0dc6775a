//! Addresses of functions: which function one means, and which functions have one.
//!
//! Calls are inlined, so no code has an address. A function's is made from its name and its text instead: the same on
//! every device, wherever the program may keep it, and another for a function of the same name that does something
//! else. A call by address compares it with those of the functions that may be meant. Snapshots hold such addresses:
//! how they are made must not change.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::ast::{Function, Init, Instruction, Module, Operand, Statement};

/// The upper byte of an address, which no memory has.
const UPPER: u64 = 0xF1 << 56;

/// Addresses are even: those of member functions have another meaning otherwise (Itanium C++ ABI, "Member Pointers").
const ALIGN: u64 = 16;

/// The address of a function: 64-bit FNV-1a of its name and its text, shortened.
pub(crate) fn address(function: &Function<'_>) -> u64 {
    let bytes = function.name.bytes().chain(function.text.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    UPPER | hash & !(0xFF << 56) & !(ALIGN - 1)
}

/// The functions with a body whose addresses `module` takes, by address. Those of two that have the same are left out.
pub(crate) fn taken<'a>(module: &Module<'a>) -> BTreeMap<u64, &'a str> {
    let with_body = module.functions.iter().filter(|f| !f.is_entry && f.body.is_some());
    let functions: HashMap<&str, &Function<'a>> = with_body.map(|f| (f.name, f)).collect();
    if functions.is_empty() {
        return BTreeMap::new();
    }
    let mut by_address: BTreeMap<u64, Option<&'a str>> = BTreeMap::new();
    let mut noted = HashSet::new();
    let mut note = |name: &'a str| {
        let Some(function) = functions.get(name).filter(|_| noted.insert(name)) else {
            return;
        };
        let slot = by_address.entry(address(function));
        slot.and_modify(|known| *known = None).or_insert(Some(name));
    };
    for variable in &module.variables {
        if let Some(init) = &variable.init {
            names_in(init, &mut note);
        }
    }
    let statements = module.functions.iter().filter_map(|f| f.body.as_deref()).flatten();
    let instructions = statements.filter_map(|statement| match statement {
        Statement::Instruction(inst) if inst.opcode != "call" => Some(inst),
        _ => None,
    });
    instructions.flat_map(names_of).for_each(note);
    by_address
        .into_iter()
        .filter_map(|(address, name)| Some((address, name?)))
        .collect()
}

/// The functions that may call themselves, by way of others or not. What lies on the way from one of these to another
/// is among them.
pub(crate) fn recursive<'a>(module: &Module<'a>) -> HashSet<&'a str> {
    let with_body = module.functions.iter().filter(|f| !f.is_entry && f.body.is_some());
    let mut left: HashMap<&'a str, Vec<&'a str>> = with_body.map(|f| (f.name, callees(f))).collect();
    let known: HashSet<&str> = left.keys().copied().collect();
    left.values_mut()
        .for_each(|callees| callees.retain(|name| known.contains(name)));
    // Whoever calls nobody that is left is in no cycle, and neither is whom nobody calls.
    for _ in 0..2 {
        left = without_leaves(left);
        let mut reversed: HashMap<&'a str, Vec<&'a str>> = left.keys().map(|name| (*name, Vec::new())).collect();
        for (caller, callees) in &left {
            for callee in callees {
                reversed.entry(callee).or_default().push(caller);
            }
        }
        left = reversed;
    }
    left.into_keys().collect()
}

fn callees<'a>(function: &Function<'a>) -> Vec<&'a str> {
    let statements = function.body.iter().flatten();
    let calls = statements.filter_map(|statement| match statement {
        Statement::Instruction(inst) if inst.opcode == "call" => Some(inst),
        _ => None,
    });
    calls.flat_map(names_of).collect()
}

/// A graph without what leads nowhere, directly or in the end.
fn without_leaves<'a>(mut graph: HashMap<&'a str, Vec<&'a str>>) -> HashMap<&'a str, Vec<&'a str>> {
    let mut callers: HashMap<&str, Vec<&'a str>> = HashMap::new();
    for (caller, callees) in &graph {
        for callee in callees {
            callers.entry(callee).or_default().push(caller);
        }
    }
    let mut num_callees: HashMap<&str, usize> = graph.iter().map(|(name, callees)| (*name, callees.len())).collect();
    let is_leaf = |(name, callees): (&&'a str, &Vec<&'a str>)| callees.is_empty().then_some(*name);
    let mut leaves: Vec<&'a str> = graph.iter().filter_map(is_leaf).collect();
    while let Some(leaf) = leaves.pop() {
        graph.remove(leaf);
        for caller in callers.get(leaf).into_iter().flatten() {
            let Some(count) = num_callees.get_mut(caller) else {
                continue;
            };
            *count -= 1;
            if *count == 0 {
                leaves.push(caller);
            }
        }
    }
    graph
        .values_mut()
        .for_each(|callees| callees.retain(|name| num_callees.get(name).is_some_and(|&count| count > 0)));
    graph
}

/// Names that an instruction has as they are: registers, too.
fn names_of<'m, 'a>(inst: &'m Instruction<'a>) -> impl Iterator<Item = &'a str> + use<'m, 'a> {
    inst.operands.iter().filter_map(|operand| match operand {
        Operand::Name(name, None) => Some(*name),
        _ => None,
    })
}

fn names_in<'a>(init: &Init<'a>, found: &mut impl FnMut(&'a str)) {
    match init {
        Init::Address { name, .. } => found(name),
        Init::List(parts) => parts.iter().for_each(|part| names_in(part, found)),
        Init::Value(_) => {}
    }
}
