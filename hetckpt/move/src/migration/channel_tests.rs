use hetckpt_ring::failure_code::Code;
use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use super::*;

/// What one end has said and the other has not heard yet.
type Way = Arc<Mutex<VecDeque<u8>>>;

/// A connection that never waits: what is not there is the end.
struct Pipe {
    from: Way,
    to: Way,
}

impl Read for Pipe {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.from.lock().read(bytes)
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Transport for Pipe {
    fn set_limit(&mut self, _: Instant) {}

    fn has_something_to_say(&self) -> bool {
        !self.from.lock().is_empty()
    }
}

/// Two ends, and what the second says.
fn ends() -> (Channel, Channel, Way) {
    let (there, back) = (Way::default(), Way::default());
    let end = |from: &Way, to: &Way| Pipe {
        from: Arc::clone(from),
        to: Arc::clone(to),
    };
    let first = Channel::new(Box::new(end(&back, &there)), "second");
    (first, Channel::new(Box::new(end(&there, &back)), "first"), back)
}

/// What an end makes of `bytes`.
fn heard(bytes: &[u8]) -> Failure {
    let (mut channel, _, said) = ends();
    said.lock().extend(bytes);
    channel.receive().unwrap_err()
}

#[test]
fn messages_and_data_arrive() {
    let (mut here, mut there, _) = ends();
    here.send(&Message::Working).unwrap();
    here.send_data(7, b"abc").unwrap();
    here.send(&Message::Forgotten).unwrap();
    there
        .receive_frame(|frame| assert!(matches!(frame, Frame::Data(7, b"abc"))))
        .unwrap();
    assert_eq!(there.receive().unwrap(), Message::Forgotten);
    assert_eq!(there.receive().unwrap_err().code, Code::ConnectionBroke);
}

#[test]
fn another_version_is_refused_in_words() {
    for (hello, part) in [
        (r#"{"kind":"hello","protocol":2,"new":1}"#, "version 2 of the protocol"),
        (r#"{"kind":"working"}"#, "does not begin with its version"),
        ("GET / HTTP/1.1", "does not begin with its version"),
    ] {
        let (mut channel, _, said) = ends();
        let mut said = said.lock();
        said.push_back(0);
        said.extend(u32::try_from(hello.len()).unwrap().to_be_bytes());
        said.extend(hello.bytes());
        drop(said);
        let failure = channel.agree().unwrap_err();
        assert_eq!(failure.code, Code::NotUnderstood);
        assert!(failure.notes[0].contains(part), "{failure:?}");
    }
}

#[test]
fn too_much_and_nonsense_is_refused_before_it_is_taken_in() {
    let too_long = u32::try_from(MAX_MESSAGE_BYTES + 1).unwrap().to_be_bytes();
    for bytes in [
        [&[0][..], &too_long].concat(),
        [&[1][..], &u32::MAX.to_be_bytes()].concat(),
        vec![2, 0, 0, 0, 0],
        vec![1, 0, 0, 0, 3, 1, 2, 3],
        vec![0, 0, 0, 0, 1, b'{'],
    ] {
        assert_eq!(heard(&bytes).code, Code::NotUnderstood, "{bytes:?}");
    }
    for bytes in [&[][..], &[0], &[0, 0, 0, 0, 9, b'{']] {
        assert_eq!(heard(bytes).code, Code::ConnectionBroke, "{bytes:?}");
    }
}

#[test]
fn a_refusal_amid_data_is_heard() {
    let (mut here, mut there, _) = ends();
    let refusal = Failure::new(Code::CannotWrite, "full");
    there.send(&Message::Refused((&refusal).into())).unwrap();
    let failure = here.send_data(0, b"abc").unwrap_err();
    assert_eq!((failure.code, &*failure.message), (Code::CannotWrite, "second: full"));
}

#[test]
fn who_works_says_so() {
    let (mut here, mut there, _) = ends();
    let done = here
        .while_working(|| {
            std::thread::sleep(WORKING_INTERVAL + WORKING_INTERVAL / 2);
            Ok(7)
        })
        .unwrap();
    assert_eq!(done, 7);
    here.send(&Message::Forgotten).unwrap();
    assert_eq!(there.receive().unwrap(), Message::Forgotten);
    let failure = here
        .while_working(|| Err::<(), _>(Failure::new(Code::CannotWrite, "full")))
        .unwrap_err();
    assert_eq!(failure.code, Code::CannotWrite);
}
