//! One server that holds state: where it is, how it is, and the lanes to it.

use std::cell::Cell;
use std::future::pending;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

use super::ServerStatus;
use super::batch::{Call, Terms};
use super::cluster::Cluster;
use super::connection::{Connection, Dialogue, Door};
use super::error::RedisError;
use super::health::{Health, Turns};
use super::job::Job;
use super::lane::Lane;
use super::reply::Reply;
use super::script::Scripts;
use super::target::Address;

/// What all connections of one store have in common.
pub(super) struct Link {
    pub(super) door: Door,
    pub(super) terms: Terms,
    pub(super) scripts: Scripts,
    /// How long a check may take: whoever answers later does not answer.
    pub(super) deadline: Duration,
    /// How many connections lead to each server.
    pub(super) lanes: usize,
    pub(super) runtime: Handle,
    /// Draws pauses, from 0 up to 1.
    pub(super) dice: fn() -> f64,
}

impl Link {
    /// A connection that owes an answer for so long is given up.
    pub(super) fn stall(&self) -> Duration {
        STALL_MIN.max(self.deadline)
    }
}

const STALL_MIN: Duration = Duration::from_millis(200);
const DIAL_MAX: Duration = Duration::from_secs(2);
/// What is waited for the answer to a probe although the deadline is shorter: the first answer of a connection is its
/// slowest.
const PROBE_MIN: Duration = Duration::from_millis(25);
/// The first pause after a failed connection is drawn from up to this, each next one from up to twice as much.
const PAUSE_FIRST: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Where a server is.
#[derive(Debug)]
pub(super) enum Whereabouts {
    Fixed(Address),
    /// Wherever the sentinels say that the primary of this name is.
    Watched {
        name: Arc<str>,
        primary: watch::Receiver<Named>,
    },
}

/// What the sentinels say of the primary.
#[derive(Clone, Default, Debug)]
pub(super) struct Named {
    pub(super) address: Option<Address>,
    /// Why there is no address.
    pub(super) trouble: Option<RedisError>,
}

impl Whereabouts {
    fn now(&self) -> Option<Address> {
        match self {
            Whereabouts::Fixed(address) => Some(address.clone()),
            Whereabouts::Watched { primary, .. } => primary.borrow().address.clone(),
        }
    }

    /// Waits until it is known, or known not to be.
    async fn known(&self) -> Result<Address, RedisError> {
        match self {
            Whereabouts::Fixed(address) => Ok(address.clone()),
            Whereabouts::Watched { name, primary } => {
                let told = |named: &Named| named.address.is_some() || named.trouble.is_some();
                let named = primary.clone().wait_for(told).await.map(|named| named.clone());
                let Named { address, trouble } = named.unwrap_or_default();
                let source = trouble.map(Arc::new);
                address.ok_or_else(|| RedisError::NoPrimary { name: Arc::clone(name), source })
            }
        }
    }

    /// Waits until it is elsewhere.
    pub(super) async fn leaves(&self, address: Option<&Address>) {
        if let Whereabouts::Watched { primary, .. } = self {
            let left = |named: &Named| named.address.is_some() && named.address.as_ref() != address;
            if primary.clone().wait_for(left).await.is_ok() {
                return;
            }
        }
        pending().await
    }
}

/// A server and the lanes to it. When it is dropped the lanes finish what they have, and end.
pub(super) struct Node {
    pub(super) state: Arc<NodeState>,
    lanes: Box<[mpsc::UnboundedSender<Job>]>,
}

/// What the lanes to one server share.
pub(super) struct NodeState {
    pub(super) link: Arc<Link>,
    pub(super) whereabouts: Whereabouts,
    pub(super) health: Arc<Health>,
    /// Where to send what this server sends elsewhere.
    pub(super) cluster: Weak<Cluster>,
    /// Held while a connection is made: one at a time.
    pace: Mutex<Pace>,
}

/// When the next connection may be tried.
#[derive(Debug)]
struct Pace {
    /// Nothing is known against another address.
    tried: Option<Address>,
    pause: Duration,
    barred: Option<(Instant, RedisError)>,
}

/// No connection, and none to be tried before this.
#[derive(Debug)]
pub(super) struct NotYet {
    pub(super) tried: Option<Address>,
    pub(super) until: Instant,
    pub(super) error: RedisError,
}

impl Node {
    /// Starts the lanes.
    pub(super) fn new(
        link: &Arc<Link>,
        whereabouts: Whereabouts,
        health: Arc<Health>,
        cluster: Weak<Cluster>,
    ) -> Node {
        let pace = Mutex::new(Pace { tried: None, pause: PAUSE_FIRST, barred: None });
        let state = Arc::new(NodeState { link: Arc::clone(link), whereabouts, health, cluster, pace });
        let start = |_| {
            // As many jobs as there are permits: they bound it.
            let (sender, jobs) = mpsc::unbounded_channel();
            link.runtime.spawn(Lane::new(Arc::clone(&state), jobs).run());
            sender
        };
        let lanes = (0..link.lanes).map(start).collect();
        Node { state, lanes }
    }

    /// How it is doing.
    pub(super) fn status(&self) -> ServerStatus {
        let NodeState { whereabouts, health, .. } = &*self.state;
        let Turns { opened, closed } = health.turns();
        let address = whereabouts.now().map(|address| address.to_string());
        ServerStatus { address, down: health.why_down(), opened, closed }
    }

    /// Sends a job there, or tells whoever waits why not.
    pub(super) fn send(&self, job: Job) {
        if let Some(why) = self.state.health.why_down() {
            return job.answer(Err(why));
        }
        let lane = &self.lanes[ordinal() % self.lanes.len()];
        if let Err(mpsc::error::SendError(job)) = lane.send(job) {
            // The lane ends when the runtime does.
            job.answer(Err(RedisError::Closed));
        }
    }
}

/// The number of this thread among those that ever asked: each has a lane of its own, as far as there are any.
fn ordinal() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static ORDINAL: Cell<Option<usize>> = const { Cell::new(None) };
    }
    ORDINAL.with(|own| {
        own.get().unwrap_or_else(|| {
            let ordinal = NEXT.fetch_add(1, Ordering::Relaxed);
            own.set(Some(ordinal));
            ordinal
        })
    })
}

impl NodeState {
    /// A connection that has answered, and whither.
    pub(super) async fn connect(&self) -> Result<(Address, Connection), NotYet> {
        let mut pace = self.pace.lock().await;
        let tried = self.whereabouts.now();
        if pace.tried != tried {
            *pace = Pace { tried: tried.clone(), pause: PAUSE_FIRST, barred: None };
        }
        if let Some((until, error)) = pace.barred.clone().filter(|(until, _)| Instant::now() < *until) {
            return Err(NotYet { tried, until, error });
        }
        match self.dial().await {
            Ok(connected) => {
                self.health.answers();
                Ok(connected)
            }
            Err(error) => Err(self.bar(&mut pace, error)),
        }
    }

    /// What a connection came to. A server that lets us in and does no work is no better than none.
    pub(super) async fn ended(&self, worked: bool, error: RedisError) {
        let mut pace = self.pace.lock().await;
        if worked {
            pace.pause = PAUSE_FIRST;
        } else {
            self.bar(&mut pace, error);
        }
    }

    fn bar(&self, pace: &mut Pace, error: RedisError) -> NotYet {
        let error = match &pace.tried {
            Some(address) => error.of_unsent(address),
            None => error,
        };
        self.health.fails(error.clone());
        let until = Instant::now() + pace.pause.mul_f64((self.link.dice)());
        // A replica that was chosen is about to be a primary.
        if !matches!(error, RedisError::Replica { .. }) {
            pace.pause = PAUSE_MAX.min(pace.pause * 2);
        }
        pace.barred = Some((until, error.clone()));
        NotYet { tried: pace.tried.clone(), until, error }
    }

    async fn dial(&self) -> Result<(Address, Connection), RedisError> {
        let mut dialling = pin!(timeout(DIAL_MAX, async {
            let address = self.whereabouts.known().await?;
            let connection = self.enter(&address).await?;
            Ok((address, connection))
        }));
        let dialled = tokio::select! {
            dialled = &mut dialling => dialled,
            () = sleep(self.link.stall()) => {
                // Whoever asks meanwhile should not wait for it.
                self.health.fails(self.unreached());
                dialling.await
            }
        };
        dialled.unwrap_or_else(|_| Err(self.unreached()))
    }

    fn unreached(&self) -> RedisError {
        match (&self.whereabouts, self.whereabouts.now()) {
            (Whereabouts::Watched { name, .. }, None) => {
                RedisError::NoPrimary { name: Arc::clone(name), source: None }
            }
            (_, address) => {
                let address = address.map_or_else(String::new, |address| address.to_string()).into();
                RedisError::Connect { address, source: Arc::new(too_late()) }
            }
        }
    }

    /// Connects, is let in, and sees that it works: with the call that carries out nothing.
    async fn enter(&self, address: &Address) -> Result<Connection, RedisError> {
        let Link { door, terms, scripts, deadline, .. } = &*self.link;
        let mut dialogue = door.enter(address).await?;
        let mut probe = Vec::new();
        Call::new(&mut [], *terms, scripts).write(&mut probe, true);
        let answer = async {
            dialogue.say(&probe).await?;
            match dialogue.hear().await? {
                Reply::Error(answer) => Err(RedisError::Refused(answer)),
                _ => Ok(()),
            }
        };
        match timeout(PROBE_MIN.max(*deadline), answer).await {
            Err(_) => return Err(too_late().into()),
            // It would have run it, had it known it.
            Ok(Err(error)) if error.is("NOSCRIPT") => (),
            Ok(answer) => answer?,
        }
        if matches!(self.whereabouts, Whereabouts::Watched { .. }) {
            takes_writes(&mut dialogue, address).await?;
        }
        Ok(dialogue.into_connection())
    }
}

/// Sentinels may be late to know: the server itself says what it is.
async fn takes_writes(dialogue: &mut Dialogue, address: &Address) -> Result<(), RedisError> {
    let role = dialogue.ask(&[b"ROLE"]).await?;
    match role.parts().and_then(|parts| parts.first()).and_then(Reply::text) {
        Some("master") => Ok(()),
        Some(_) => Err(RedisError::Replica { address: address.to_string().into() }),
        None => Err(RedisError::Nonsense("a server says nothing of its role")),
    }
}

fn too_late() -> io::Error {
    io::ErrorKind::TimedOut.into()
}
