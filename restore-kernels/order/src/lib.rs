//! The order of everything that an application asks of its device: a state machine without a device.
//!
//! Streams are queues in order. An item is *given* to the device, or *taken* by a thread that does it; it is *done*
//! when all items before it in its stream are done too, and then counts. A [`Place`](hetckpt_state::queue::Place) names
//! a stream and a number of items done there. Joins with the legacy default stream, waits for events and synchronises
//! all become places when the command arrives, so that nothing has to be looked up later.
//!
//! A pause lets nothing begin. What is on the device *lands*: done, or stopped. Once something of a stream has stopped,
//! whatever was given behind it goes back into the queue, so that nothing takes effect behind a stopped launch.
//!
//! Each event of the outside is one function of [`Order`](order::Order). None of them waits or calls a device: the
//! server does, and `tests/model.rs` does in its place for all orders in which events can come.

pub mod order;
pub mod stream;
