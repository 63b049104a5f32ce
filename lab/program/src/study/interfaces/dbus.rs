//! A method call through `dbus-daemon`, by rustbus. Of the clients that were compared (rustbus, libdbus, zbus with
//! tokio, zbus' blocking calls), it was the fastest or as fast as the fastest, both on one core and on two.

use std::time::Duration;

use rustbus::connection::{Timeout, ll_conn::force_finish_on_error};
use rustbus::message_builder::MarshalledMessage;
use rustbus::{MessageBuilder, MessageType, RpcConn, standard_messages};

use super::rivals::Call;
use crate::study::failure::{Doing, Failure};

/// The variable in which rustbus finds the address of the bus.
pub(super) const ADDRESS: &str = "DBUS_SESSION_BUS_ADDRESS";
/// The name of the service, and of its interface.
const NAME: &str = "org.corewire.Measured";
const OBJECT: &str = "/org/corewire/Measured";
const METHOD: &str = "Echo";
/// How long a call may take.
const PATIENCE: Timeout = Timeout::Duration(Duration::from_secs(10));
const OWNS: u32 = 1;

fn connect() -> Result<RpcConn, Failure> {
    RpcConn::session_conn(PATIENCE).map_err(explain).doing("connect to the bus")
}

fn send(connection: &mut RpcConn, message: &mut MarshalledMessage) -> Result<u32, Failure> {
    let sending = connection.send_message(message).map_err(explain)?;
    sending.write_all().map_err(force_finish_on_error).map_err(explain)
}

fn exchange(
    connection: &mut RpcConn,
    request: &mut MarshalledMessage,
) -> Result<MarshalledMessage, Failure> {
    let serial = send(connection, request)?;
    let reply = connection.wait_response(serial, PATIENCE).map_err(explain)?;
    if reply.typ == MessageType::Reply {
        return Ok(reply);
    }
    let name = reply.dynheader.error_name.unwrap_or_default();
    Err(Failure::other(format!("the bus refuses a call: {name}")))
}

fn explain(error: impl std::fmt::Debug) -> Failure {
    Failure::other(format!("D-Bus: {error:?}"))
}

/// Connects, and takes the service's name. Returns what serves until the connection ends.
pub(super) fn service() -> Result<impl FnOnce() + Send + 'static, Failure> {
    let mut connection = connect()?;
    let mut request =
        standard_messages::request_name(NAME, standard_messages::DBUS_NAME_FLAG_DO_NOT_QUEUE);
    let reply = exchange(&mut connection, &mut request)?;
    if reply.body.parser().get::<u32>().map_err(explain)? != OWNS {
        return Err(Failure::other("the bus does not give the service its name"));
    }
    Ok(move || while serve(&mut connection).is_ok() {})
}

fn serve(connection: &mut RpcConn) -> Result<(), Failure> {
    let call = connection.wait_call(Timeout::Infinite).map_err(explain)?;
    let number: u64 = call.body.parser().get().map_err(explain)?;
    let mut reply = call.dynheader.make_response();
    reply.body.push_param(number).map_err(explain)?;
    send(connection, &mut reply).map(drop)
}

/// The caller.
pub(super) struct Caller(RpcConn);

impl Caller {
    pub(super) fn connect() -> Result<Self, Failure> {
        connect().map(Self)
    }
}

impl Call for Caller {
    fn call(&mut self, number: u64) -> Result<u64, Failure> {
        let call = MessageBuilder::new().call(METHOD).on(OBJECT).with_interface(NAME).at(NAME);
        let mut request = call.build();
        request.body.push_param(number).map_err(explain)?;
        exchange(&mut self.0, &mut request)?.body.parser().get().map_err(explain)
    }
}
