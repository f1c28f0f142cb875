//! Arrays of handles that C gets and gives back.
#![expect(unsafe_code, reason = "arrays of pointers are sent between threads")]

use std::sync::{Arc, Mutex, PoisonError};

use crate::c_abi::{Handle, INVALID, Outcome};

/// The lists of one kind that C has not given back.
pub(crate) struct Lists<T>(Mutex<Vec<List<T>>>);

struct List<T> {
    /// With a NULL behind the last, so that no two lists are at one address.
    array: Box<[Handle<T>]>,
    _alive: Vec<Arc<T>>,
}

// SAFETY: the pointers are to what the list keeps alive, and are not followed here.
unsafe impl<T: Send + Sync> Send for List<T> {}

impl<T> Lists<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// An array of handles of `objects`, which lives until it is destroyed.
    pub(crate) fn create(&self, objects: Vec<Arc<T>>) -> *const Handle<T> {
        let handles = objects.iter().map(|object| Handle::of(&**object));
        let array: Box<[_]> = handles.chain([Handle::null()]).collect();
        let address = array.as_ptr();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(List { array, _alive: objects });
        address
    }

    /// # Errors
    ///
    /// There is no such list.
    pub(crate) fn destroy(&self, array: *const Handle<T>) -> Outcome {
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = lists.iter().position(|list| std::ptr::eq(list.array.as_ptr(), array)).ok_or(INVALID)?;
        lists.swap_remove(place);
        Ok(())
    }
}
