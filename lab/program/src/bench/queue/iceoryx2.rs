//! iceoryx2: requests and responses. It has no queue (a "pipeline" is planned), and neither side can sleep until something
//! comes without a second service for events, so both poll, which is its fastest form.

use corewire_harness::failure::Doing;
use iceoryx2::active_request::ActiveRequest;
use iceoryx2::port::client::Client;
use iceoryx2::port::server::Server;
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::PortFactory as _;
use iceoryx2::service::port_factory::request_response::PortFactory;

use super::super::prelude::*;
use super::bare::relax_or_look;
use super::requests::{self, Asks, Replies};
use super::{Gives, Next, Takes};
use crate::rivals::iceoryx2::{Service, await_others, node};

type Factory = PortFactory<Service, u64, (), [u8], ()>;

fn open(
    options: &Options,
    directory: &std::path::Path,
) -> Result<(Node<Service>, Factory), Failure> {
    let node = node(directory, 0)?;
    let name = "queue".try_into().doing("name a service")?;
    let service = node
        .service_builder(&name)
        .request_response::<u64, [u8]>()
        .enable_safe_overflow_for_requests(false)
        .enable_safe_overflow_for_responses(false)
        .max_servers(1)
        .max_clients(options.receivers)
        .max_nodes(options.receivers + 1)
        .max_active_requests_per_client(2)
        .open_or_create()
        .doing("open an iceoryx2 service")?;
    Ok((node, service))
}

struct Replier {
    server: Server<Service, u64, (), [u8], ()>,
    _node: Node<Service>,
}

pub(super) fn giver(options: &Options, crew: &Crew) -> Result<Box<dyn Gives>, Failure> {
    let (node, service) = open(options, crew.directory())?;
    let server = service.server_builder().initial_max_slice_len(options.bytes);
    let server = server.create().doing("make an iceoryx2 server")?;
    Ok(Box::new(requests::Giver::new(Replier { server, _node: node }, options)))
}

impl Replies for Replier {
    type Asker = ActiveRequest<Service, u64, (), [u8], ()>;

    fn await_request(&mut self, crew: &mut Crew) -> Result<(Self::Asker, u64), Failure> {
        let mut polls = 0;
        loop {
            if let Some(request) = self.server.receive().doing("receive a request")? {
                let said = *request;
                return Ok((request, said));
            }
            polls += 1;
            relax_or_look(polls, crew)?;
        }
    }

    fn reply(&mut self, to: Self::Asker, job: &[u8]) -> Result<(), Failure> {
        let response = to.loan_slice_uninit(job.len()).doing("loan a response")?;
        response.write_from_slice(job).send().doing("send a response")
    }
}

struct Asker {
    client: Client<Service, u64, (), [u8], ()>,
    _node: Node<Service>,
}

pub(super) fn taker(options: &Options, worker: &Worker) -> Result<Box<dyn Takes>, Failure> {
    let (node, service) = open(options, worker.directory())?;
    await_others(|| service.dynamic_config().number_of_servers() == 1);
    let client = service.client_builder().create().doing("make an iceoryx2 client")?;
    Ok(Box::new(requests::Taker(Asker { client, _node: node })))
}

impl Asks for Asker {
    fn ask(
        &mut self,
        say: u64,
        worker: &Worker,
        read: &mut dyn FnMut(&[u8]) -> Result<Next, Failure>,
    ) -> Result<Next, Failure> {
        let pending = self.client.send_copy(say).doing("send a request")?;
        loop {
            if let Some(response) = pending.receive().doing("receive a response")? {
                return read(&response);
            }
            worker.relax();
        }
    }
}
