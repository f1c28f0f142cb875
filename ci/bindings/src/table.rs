//! Tables of function pointers, made of bindgen's declarations.

use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::CString;
use std::path::Path;

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::{ForeignItem, ForeignItemFn, Item, LitCStr};

use crate::sdk::{Library, Sdk};

/// The text of `table.rs`.
pub(crate) fn write(sdk: &Sdk, include: &Path, bindings: &str) -> Result<String, Box<dyn Error>> {
    let calls = declared(bindings)?;
    let mut items = Vec::new();
    for library in sdk.libraries {
        let mut own = BTreeMap::new();
        for header in library.headers {
            let path = include.join(header);
            let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            for (name, call) in &calls {
                // A declaration has the name followed by its parameters; calls within inline functions do too, but
                // they are to what another header of the same library declares.
                if text.contains(&format!("{name}(")) {
                    own.insert(name.as_str(), call);
                }
            }
        }
        if let Some(absent) = library.required.iter().find(|name| !own.contains_key(*name)) {
            return Err(
                format!("{absent} is required of {} but not declared in its headers", library.file).into()
            );
        }
        items.push(table(library, &own));
    }
    let file: syn::File = syn::parse2(quote! {
        use core::ffi::{CStr, c_void};
        use core::ptr::NonNull;

        use crate::bindings::*;

        #[doc = r" # Safety"]
        #[doc = r""]
        #[doc = r" `F` is a function pointer, and what it says of the function at `address` is true."]
        unsafe fn function<F: Copy>(address: NonNull<c_void>) -> F {
            const { assert!(size_of::<F>() == size_of::<NonNull<c_void>>()) }
            unsafe { core::mem::transmute_copy(&address) }
        }

        #(#items)*
    })?;
    Ok(format!("{HEAD}{}", prettyplease::unparse(&file)))
}

const HEAD: &str = r#"//! The calls of each library, as function pointers.
//!
//! Written by the program in ci/bindings: change that, not this.
#![expect(unsafe_code, reason = "addresses found by name are taken for functions")]
#![allow(clippy::undocumented_unsafe_blocks, clippy::multiple_unsafe_ops_per_block, reason = "written by a program")]

"#;

/// The functions that bindgen declared, by name. Variadic ones are left out: nothing here calls them.
fn declared(bindings: &str) -> Result<BTreeMap<String, ForeignItemFn>, syn::Error> {
    let file = syn::parse_file(bindings)?;
    let blocks = file.items.into_iter().filter_map(|item| match item {
        Item::ForeignMod(block) => Some(block.items),
        _ => None,
    });
    let functions = blocks.flatten().filter_map(|item| match item {
        ForeignItem::Fn(f) if f.sig.variadic.is_none() => Some((f.sig.ident.to_string(), f)),
        _ => None,
    });
    Ok(functions.collect())
}

/// The struct of one library.
fn table(library: &Library, calls: &BTreeMap<&str, &ForeignItemFn>) -> TokenStream {
    let name = format_ident!("{}", library.name);
    let what = format!(
        " The calls of `{}`. Each field has the name of its call, and is an option where a version may",
        library.file
    );
    let (mut fields, mut needs, mut loaded, mut linked) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (&call, declaration) in calls {
        let field = format_ident!("{call}");
        let symbol = LitCStr::new(&CString::new(call).expect("no NUL in a name"), Span::call_site());
        let (inputs, output) = (&declaration.sig.inputs, &declaration.sig.output);
        let ty = quote!(unsafe extern "C" fn(#inputs) #output);
        let doc = format!(" `{call}`.");
        if library.required.contains(&call) {
            fields.push(quote!(#[doc = #doc] pub #field: #ty));
            needs.push(quote!(let #field = need(#symbol);));
            loaded.push(quote!(#field: function(#field?)));
            linked.push(quote!(#field));
        } else {
            let optional = quote!(#field: get(#symbol).map(|f| function(f)));
            fields.push(quote!(#[doc = #doc] pub #field: Option<#ty>));
            loaded.push(optional.clone());
            linked.push(optional);
        }
    }
    quote! {
        #[doc = #what]
        #[doc = " lack it."]
        #[derive(Clone, Copy, Debug)]
        pub struct #name { #(#fields,)* }

        impl #name {
            #[doc = r" Takes from `get` the address of each call. `Err` names the required ones that it does not have."]
            #[doc = r""]
            #[doc = r" # Errors"]
            #[doc = r""]
            #[doc = r" The names of all required calls for which `get` answered `None`."]
            #[doc = r""]
            #[doc = r" # Safety"]
            #[doc = r""]
            #[doc = r" What `get` answers for a name is the address of the function that the headers declare by it, and stays so for as"]
            #[doc = r" long as the table or a copy of it is used."]
            pub unsafe fn load(
                mut get: impl FnMut(&'static CStr) -> Option<NonNull<c_void>>,
            ) -> Result<Self, Vec<&'static CStr>> {
                let mut missing = Vec::new();
                let mut need = |name| {
                    let found = get(name);
                    if found.is_none() {
                        missing.push(name);
                    }
                    found
                };
                #(#needs)*
                let mut all = || unsafe { Some(Self { #(#loaded,)* }) };
                all().ok_or(missing)
            }

            #[doc = r" Takes the required calls from what this program was linked with, and the others from `get`."]
            #[doc = r""]
            #[doc = r" # Safety"]
            #[doc = r""]
            #[doc = r" As [`load`](Self::load)."]
            #[cfg(feature = "linked")]
            pub unsafe fn linked(mut get: impl FnMut(&'static CStr) -> Option<NonNull<c_void>>) -> Self {
                unsafe { Self { #(#linked,)* } }
            }
        }
    }
}
