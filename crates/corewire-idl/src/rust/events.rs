//! What the service sends without being asked, as the client receives it.

use proc_macro2::{Ident, TokenStream};
use quote::quote;

use super::plan::Plan;
use super::results::assign;
use super::{Generator, docs_or};
use crate::form::{Argument, Kind, Resolved, Type};

impl Generator<'_> {
    /// The enumeration of all events, if there are any.
    pub(super) fn events(&self) -> TokenStream {
        let plans = self.plans();
        let plans = plans.iter().filter(|plan| plan.is_event()).collect::<Vec<_>>();
        if plans.is_empty() {
            return TokenStream::new();
        }
        let (variants, arms): (Vec<_>, Vec<_>) =
            plans.iter().map(|plan| (self.variant(plan), self.arm(plan))).unzip();
        let arguments = plans.iter().flat_map(|plan| &plan.arguments);
        // An event is not a value like others: more may be added.
        let derives = self.derives_without_copy(arguments.map(|(_, one)| &one.of));
        let is_versioned = plans.iter().any(|plan| plan.is_versioned());
        let forms = is_versioned.then(|| quote!(, form_of: impl Fn(usize) -> corewire_bind::Form));
        let mutable = plans.iter().any(|plan| plan.has_capabilities()).then(|| quote!(mut));
        quote! {
            #[doc = " What the service sends without being asked."]
            #derives
            pub enum Event { #(#variants)* }

            impl Event {
                fn decode(
                    ordinal: u16,
                    #mutable message: corewire_bind::Message
                    #forms
                ) -> Result<Self, corewire_bind::CallError> {
                    match ordinal {
                        #(#arms)*
                        _ => Err(corewire_bind::CallError::Unknown),
                    }
                }
            }
        }
    }

    fn variant(&self, plan: &Plan<'_>) -> TokenStream {
        let variant = super::names::ident(&self.stems[plan.message.name.as_str()].1);
        let docs = docs_or(&plan.message.docs, &format!("`{}`.", plan.message.name));
        let fields = plan.fields.iter().zip(&plan.arguments).map(|(name, (_, argument))| {
            let of = self.owned(&argument.of);
            let docs = docs_or(&argument.docs, &format!("`{}`.", argument.name));
            quote!(#docs #name: #of,)
        });
        let fields = (!plan.arguments.is_empty()).then(|| quote!({ #(#fields)* }));
        quote!(#docs #variant #fields,)
    }

    fn arm(&self, plan: &Plan<'_>) -> TokenStream {
        let variant = super::names::ident(&self.stems[plan.message.name.as_str()].1);
        let (ordinal, index) = (plan.ordinal(), &plan.index);
        let (unpacked, decoding) = (self.unpacked(plan, "message", "parts"), self.decoding(plan));
        let form = plan.is_versioned().then(|| quote!(let form = form_of(#index);));
        let names = plan.arguments.iter().map(|(name, _)| name);
        let assigned = plan.fields.iter().zip(&plan.arguments);
        let assigned = assigned.map(|(field, (name, _))| assign(field, name));
        let fields = (!plan.arguments.is_empty()).then(|| quote!({ #(#assigned,)* }));
        // A message of both sides is decoded as it is for the service.
        let is_lent = plan.message.kind == Kind::Message;
        let values = plan.arguments.iter().filter(|_| is_lent).filter_map(|(name, argument)| {
            let value = self.to_owned(name, argument)?;
            Some(quote!(let #name = #value;))
        });
        let values = values.collect::<TokenStream>();
        quote! {
            #ordinal => {
                #form
                #unpacked
                let (#(#names,)*) = #decoding?;
                #values
                Ok(Self::#variant #fields)
            }
        }
    }

    /// An argument that was decoded as a part of its message, as a value of its own. `None` if it is one.
    fn to_owned(&self, name: &Ident, argument: &Argument) -> Option<TokenStream> {
        match self.interface.resolve(&argument.of) {
            Resolved::Plain(Type::String { .. }) => Some(quote!(#name.to_owned())),
            Resolved::Plain(Type::Vector { element, .. }) if self.is_byte(element) => {
                Some(quote!(#name.to_vec()))
            }
            Resolved::Plain(Type::Optional { of }) if !self.is_fixed(of) => {
                let (lent, owned) = (self.arrived(of, None), self.owned(of));
                let is_owned = lent.to_string() == owned.to_string();
                (!is_owned).then(|| quote!(#name.map(Into::into)))
            }
            _ => None,
        }
    }

    /// How an event is decoded by a client, `binding` being what it is bound by.
    pub(super) fn decode_event(&self) -> TokenStream {
        let plans = self.plans();
        let is_versioned = plans.iter().any(|plan| plan.is_event() && plan.is_versioned());
        let forms = is_versioned.then(|| quote!(, |wire| self.0.form(wire)));
        quote!(Event::decode(ordinal, message #forms))
    }

    /// The methods of the client that take events.
    pub(super) fn event_methods(&self) -> TokenStream {
        if !self.plans().iter().any(Plan::is_event) {
            return TokenStream::new();
        }
        let decode = self.decode_event();
        quote! {
            #[doc = " Waits for what the service sends next without being asked."]
            #[doc = ""]
            #[doc = " # Errors"]
            #[doc = " The service has gone, or the message is wrong. `EventsLost` where events are missing: this client took"]
            #[doc = " them too slowly."]
            pub fn event(&mut self) -> Result<Event, corewire_bind::CallError> {
                let (ordinal, message) = self.0.event(None)?;
                #decode
            }

            #[doc = " Like [`event`](Self::event), for at most `timeout`."]
            #[doc = ""]
            #[doc = " # Errors"]
            #[doc = " As for [`event`](Self::event); `Timeout` if there was none."]
            pub fn event_timeout(
                &mut self,
                timeout: std::time::Duration,
            ) -> Result<Event, corewire_bind::CallError> {
                let (ordinal, message) = self.0.event(Some(timeout))?;
                #decode
            }

            #[doc = " Like [`event`](Self::event), but never waits; `None` if there is none now."]
            #[doc = ""]
            #[doc = " # Errors"]
            #[doc = " As for [`event`](Self::event)."]
            pub fn try_event(&mut self) -> Result<Option<Event>, corewire_bind::CallError> {
                match self.0.try_event()? {
                    Some((ordinal, message)) => #decode.map(Some),
                    None => Ok(None),
                }
            }
        }
    }
}
