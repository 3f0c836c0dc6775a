//! Objects as programs see them: addresses that begin with a pointer to the dispatch table.
//!
//! What a handle points to is a cell with nothing else in it; the object is found in its type's table. So a handle that
//! is none, or one of another type, is an error and no wild read. An object stays in its table as long as anything
//! holds it: the program, by its reference count, or another object.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::status::{Outcome, Status};

/// An object's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Handle(pub usize);

impl Handle {
    /// No object.
    pub const NULL: Self = Self(0);
}

/// Address of the dispatch table; 0 where there is no loader, as in unit tests.
static DISPATCH_TABLE: AtomicUsize = AtomicUsize::new(0);

/// Sets the dispatch table that all handles point to. The functions that are exported by name do this first, and
/// nothing is called before them.
pub fn set_dispatch_table<T: Sync>(table: &'static [T]) {
    DISPATCH_TABLE.store(table.as_ptr().expose_provenance(), Ordering::Release);
}

/// What a handle points to.
#[derive(Debug)]
pub struct Cell(Box<[usize; 2]>);

impl Cell {
    /// A new cell.
    pub fn new() -> Self {
        // A second word keeps the allocator from giving neighbours to objects of a few bytes.
        Self(Box::new([DISPATCH_TABLE.load(Ordering::Acquire), 0]))
    }

    /// Its address.
    pub fn handle(&self) -> Handle {
        Handle((&raw const *self.0).expose_provenance())
    }
}

/// A type of objects.
pub trait Object: Sized + Send + Sync + 'static {
    /// What a wrong handle is.
    const INVALID: Status;
    /// Where its objects are.
    fn table() -> &'static Table<Self>;
    /// Its own handle's owner.
    fn identity(&self) -> &Identity;
    /// Its own handle.
    fn handle(&self) -> Handle {
        self.identity().cell.handle()
    }
}

#[derive(Debug)]
struct Entry<T> {
    object: Weak<T>,
    /// The program's hold, while it has one.
    held: Option<Arc<T>>,
    count: u32,
}

/// All objects of a type.
#[derive(Debug)]
pub struct Table<T>(Mutex<BTreeMap<Handle, Entry<T>>>);

/// Owner of an object's cell; takes the object out of its table at its end.
#[derive(Debug)]
pub struct Identity {
    cell: Cell,
    forget: fn(Handle),
}

impl Drop for Identity {
    fn drop(&mut self) {
        (self.forget)(self.cell.handle());
    }
}

impl<T> Table<T> {
    /// An empty table.
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }
}

/// Makes an object; `count` is how often the program holds it from the start.
pub fn add<T: Object>(count: u32, make: impl FnOnce(Identity) -> T) -> Arc<T> {
    let cell = Cell::new();
    let handle = cell.handle();
    let forget = |handle| {
        // Of an object at its end, so nobody holds it.
        T::table().0.lock().remove(&handle);
    };
    let object = Arc::new(make(Identity { cell, forget }));
    let entry = Entry {
        object: Arc::downgrade(&object),
        held: (count > 0).then(|| object.clone()),
        count,
    };
    T::table().0.lock().insert(handle, entry);
    object
}

/// The object behind a handle.
pub fn get<T: Object>(handle: Handle) -> Outcome<Arc<T>> {
    let table = T::table().0.lock();
    table
        .get(&handle)
        .and_then(|entry| entry.object.upgrade())
        .ok_or(T::INVALID)
}

/// The objects behind handles.
pub fn get_all<T: Object>(handles: &[Handle]) -> Outcome<Vec<Arc<T>>> {
    handles.iter().map(|&handle| get(handle)).collect()
}

/// One more hold of the program's.
pub fn retain<T: Object>(handle: Handle) -> Outcome {
    let mut table = T::table().0.lock();
    let entry = table.get_mut(&handle).ok_or(T::INVALID)?;
    if entry.held.is_none() {
        entry.held = Some(entry.object.upgrade().ok_or(T::INVALID)?);
    }
    entry.count += 1;
    Ok(())
}

/// One hold of the program's less.
pub fn release<T: Object>(handle: Handle) -> Outcome {
    let mut table = T::table().0.lock();
    let entry = table
        .get_mut(&handle)
        .filter(|entry| entry.count > 0)
        .ok_or(T::INVALID)?;
    entry.count -= 1;
    let last = if entry.count == 0 { entry.held.take() } else { None };
    // The object's end takes it out of the table.
    drop(table);
    drop(last);
    Ok(())
}

/// How often the program holds the object.
pub fn count<T: Object>(handle: Handle) -> u32 {
    T::table().0.lock().get(&handle).map_or(0, |entry| entry.count)
}

/// Gives a type its table.
macro_rules! object {
    ($type:ty, $invalid:ident) => {
        impl crate::handles::Object for $type {
            const INVALID: crate::status::Status = crate::status::Status::$invalid;
            fn table() -> &'static crate::handles::Table<Self> {
                static TABLE: crate::handles::Table<$type> = crate::handles::Table::new();
                &TABLE
            }
            fn identity(&self) -> &crate::handles::Identity {
                &self.identity
            }
        }
    };
}
pub(crate) use object;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Thing {
        identity: Identity,
    }

    object!(Thing, INVALID_EVENT);

    #[derive(Debug)]
    struct Other {
        identity: Identity,
    }

    object!(Other, INVALID_KERNEL);

    #[test]
    fn the_program_holds_what_it_was_given() {
        let handle = add(1, |identity| Thing { identity }).handle();
        assert!(get::<Thing>(handle).is_ok());
        retain::<Thing>(handle).unwrap();
        assert_eq!(count::<Thing>(handle), 2);
        release::<Thing>(handle).unwrap();
        release::<Thing>(handle).unwrap();
        assert_eq!(get::<Thing>(handle).unwrap_err(), Status::INVALID_EVENT);
        assert_eq!(release::<Thing>(handle), Err(Status::INVALID_EVENT));
    }

    #[test]
    fn what_another_object_holds_stays() {
        let thing = add(1, |identity| Thing { identity });
        let handle = thing.handle();
        release::<Thing>(handle).unwrap();
        assert!(get::<Thing>(handle).is_ok());
        assert_eq!(release::<Thing>(handle), Err(Status::INVALID_EVENT));
        drop(thing);
        assert!(get::<Thing>(handle).is_err());
    }

    #[test]
    fn a_handle_of_another_type_is_none() {
        let thing = add(1, |identity| Thing { identity });
        assert_eq!(get::<Other>(thing.handle()).unwrap_err(), Status::INVALID_KERNEL);
        assert_eq!(get::<Thing>(Handle::NULL).unwrap_err(), Status::INVALID_EVENT);
    }
}
