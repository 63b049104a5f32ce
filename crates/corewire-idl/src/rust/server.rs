//! What runs a service.

use proc_macro2::TokenStream;
use quote::quote;

use super::plan::Plan;
use super::{Generator, docs};

impl Generator<'_> {
    pub(super) fn server(&self) -> TokenStream {
        let docs = docs(&[format!("Runs a service of `{}`.", self.interface.name)]);
        let outbox = self.plans().iter().any(Plan::is_event).then(|| {
            quote! {
                #[doc = " A handle that sends events, from any thread. They go out while the service serves."]
                pub fn outbox(&self) -> Outbox {
                    Outbox(self.core.outbox())
                }
            }
        });
        quote! {
            #docs
            #[derive(Debug)]
            pub struct Server<S> {
                core: corewire_bind::ServerCore,
                service: S,
            }

            impl<S: Service> Server<S> {
                #[doc = " Creates the service. From then on clients can bind."]
                #[doc = ""]
                #[doc = " # Errors"]
                #[doc = " The name is wrong or in use, or there is no memory."]
                pub fn new(
                    domain: &corewire_bind::Domain,
                    name: &str,
                    service: S,
                ) -> Result<Self, corewire_bind::ServeError> {
                    Self::with(domain, name, service, corewire_bind::Serve::default())
                }

                #[doc = " Like [`new`](Self::new), with other settings."]
                #[doc = ""]
                #[doc = " # Errors"]
                #[doc = " As for [`new`](Self::new)."]
                pub fn with(
                    domain: &corewire_bind::Domain,
                    name: &str,
                    service: S,
                    serve: corewire_bind::Serve,
                ) -> Result<Self, corewire_bind::ServeError> {
                    let core = corewire_bind::ServerCore::new(domain, name, serve, &DESCRIPTION)?;
                    Ok(Self { core, service })
                }

                #[doc = " Handles what comes next: a message, an arrival or a departure. False if it was stopped."]
                #[doc = ""]
                #[doc = " # Errors"]
                #[doc = " The endpoint failed."]
                #[inline]
                pub fn serve_one(&mut self) -> Result<bool, corewire_bind::ServeError> {
                    self.core.serve_one(None, &mut Dispatcher(&mut self.service))
                }

                #[doc = " Like [`serve_one`](Self::serve_one), for at most `timeout`. False if nothing came."]
                #[doc = ""]
                #[doc = " # Errors"]
                #[doc = " The endpoint failed."]
                pub fn serve_one_timeout(
                    &mut self,
                    timeout: std::time::Duration,
                ) -> Result<bool, corewire_bind::ServeError> {
                    self.core.serve_one(Some(timeout), &mut Dispatcher(&mut self.service))
                }

                #[doc = " Serves until it is stopped."]
                #[doc = ""]
                #[doc = " # Errors"]
                #[doc = " The endpoint failed."]
                pub fn serve(&mut self) -> Result<(), corewire_bind::ServeError> {
                    while self.serve_one()? {}
                    Ok(())
                }

                #[doc = " Serves until it is stopped, as a task of any executor. Dropping the future loses nothing."]
                #[doc = ""]
                #[doc = " # Errors"]
                #[doc = " The endpoint failed, or the task cannot wait for it."]
                pub async fn serve_async(&mut self) -> Result<(), corewire_bind::ServeError> {
                    self.core.serve_async(&mut Dispatcher(&mut self.service)).await
                }

                #[doc = " A handle that ends [`serve`](Self::serve) from another thread."]
                pub fn stopper(&self) -> corewire_bind::Stopper {
                    self.core.stopper()
                }

                #[doc = " The clients that are bound now, and their processes."]
                pub fn clients(
                    &self,
                ) -> impl Iterator<Item = (corewire_bind::ClientId, corewire_bind::Identity)> + '_ {
                    self.core.clients()
                }

                #[doc = " Messages that were refused, because they were not of this interface."]
                pub const fn refused_count(&self) -> u64 {
                    self.core.refused_count()
                }

                #[doc = " What it has served since it began, of each method that was called."]
                pub fn totals(&self) -> impl Iterator<Item = &corewire_bind::MethodTotals> + '_ {
                    self.core.totals()
                }

                #[doc = " The program's part."]
                pub const fn service(&mut self) -> &mut S {
                    &mut self.service
                }

                #outbox
            }
        }
    }
}
