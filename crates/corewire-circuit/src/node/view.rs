//! What there is to see of a node.

use crate::wire::NodeId;
use crate::wire::packet::Origin;

use super::circuit::{CLIENT, LinkId, Phase, SERVICE};
use super::machine::Node;
use super::neighbour::Neighbour;

/// What a circuit is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhaseView {
    /// The service has not answered.
    Opening,
    /// Frames go both ways.
    Open,
    /// One side has ended it, and what that side had sent goes on.
    Ending,
}

/// A circuit at a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CircuitView {
    /// Its index in the node's table.
    pub index: usize,
    /// The service's name.
    pub service: String,
    /// Who asked for it.
    pub origin: Origin,
    /// The client's monitor.
    pub home: NodeId,
    /// What it is doing.
    pub phase: PhaseView,
    /// The link towards the client; none if it is gone.
    pub client: Option<Neighbour>,
    /// The link towards the service; none if it is gone.
    pub service_side: Option<Neighbour>,
    /// Lines that have come from the client, and from the service, modulo 2^32.
    pub lines: [u32; 2],
    /// Lines that are stored here on their way to the service, and to the client.
    pub stored_lines: [u32; 2],
    /// Lines that are lent for the two directions.
    pub lent_lines: [u32; 2],
}

/// A link of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkView {
    /// Its number.
    pub link: LinkId,
    /// Who is at its other end.
    pub neighbour: Neighbour,
    /// How many circuits lead through it.
    pub circuit_count: usize,
}

impl Node {
    /// All circuits.
    pub fn circuits(&self) -> impl Iterator<Item = CircuitView> {
        let neighbour = |link: LinkId| self.link(link).map(|link| link.neighbour);
        self.circuits.iter().map(move |(index, circuit)| {
            let [client, service] = [&circuit.sides[CLIENT], &circuit.sides[SERVICE]];
            CircuitView {
                index,
                service: circuit.parties.service.to_string(),
                origin: circuit.parties.origin,
                home: circuit.parties.home,
                phase: match circuit.phase {
                    Phase::Opening(_) => PhaseView::Opening,
                    Phase::Open => PhaseView::Open,
                    Phase::Ending(_) => PhaseView::Ending,
                },
                client: neighbour(client.link),
                service_side: neighbour(service.link),
                lines: [client.intake.taken_lines(), service.intake.taken_lines()],
                stored_lines: [client.intake.stored_lines(), service.intake.stored_lines()],
                lent_lines: [client, service].map(|side| side.intake.lent_lines()),
            }
        })
    }

    /// All links.
    pub fn links(&self) -> impl Iterator<Item = LinkView> {
        let links = self.links.iter().enumerate();
        links.filter_map(|(index, link)| {
            let link = link.as_ref()?;
            let (neighbour, circuit_count) = (link.neighbour, link.circuit_count);
            Some(LinkView { link: LinkId::new(index), neighbour, circuit_count })
        })
    }

    /// All names that this node knows, with the monitors where they are served.
    pub fn names(&self) -> impl Iterator<Item = (&str, NodeId)> {
        self.names.all().map(|(name, node)| (&**name, node))
    }

    /// Entries in lists of sides, which circuits that are gone may still have: for tests.
    #[cfg(feature = "test-hooks")]
    #[must_use]
    pub fn list_length(&self) -> usize {
        let of_links = self.links.iter().flatten().map(|link| link.due.len() + link.active.len());
        of_links.sum::<usize>() + self.borrowers.len() + self.wanting.len()
    }

    /// Asserts that the node's books agree: for tests.
    ///
    /// # Panics
    /// They do not.
    #[cfg(feature = "test-hooks")]
    pub fn check_books(&self) {
        if self.reserves_nothing() {
            // Its books are what is wrong with it.
            return;
        }
        let mut stored = 0;
        let mut lent = 0;
        for (_, circuit) in self.circuits.iter() {
            for side in &circuit.sides {
                let intake = &side.intake;
                let window = intake.window_lines();
                assert!(
                    intake.stored_lines() + intake.outstanding_lines() <= window,
                    "more is granted and stored than there is memory for: {side:?}"
                );
                stored += intake.stored_lines() as usize;
                lent += intake.lent_lines() as usize;
            }
        }
        assert_eq!(lent, self.lent_lines, "lent");
        assert!(stored >= self.store.used_lines(), "{stored} {}", self.store.used_lines());
        let reserved = self.circuits.len() * super::forward::RESERVED_LINES;
        assert!(reserved + lent <= self.config.lines_max, "overcommitted");
        let mut foreign_loans = 0;
        for (index, link) in self.links.iter().enumerate() {
            let Some(link) = link else { continue };
            let sides = self.circuits.iter().flat_map(|(_, circuit)| &circuit.sides);
            let sides: Vec<_> = sides.filter(|side| side.link.index() == index).collect();
            assert_eq!(link.circuit_count, sides.len(), "circuits of a link");
            let loans: u32 = sides.iter().map(|side| side.intake.lent_lines()).sum();
            assert_eq!(link.loan_lines, loans as usize, "loans of a link");
            foreign_loans += if self.is_foreign(link.neighbour) { link.loan_lines } else { 0 };
            assert!(link.setups.len() <= sides.len());
        }
        assert_eq!(self.foreign_loan_lines, foreign_loans, "loans of other users");
        let offers = self.circuits.iter().map(|(_, circuit)| match &circuit.phase {
            Phase::Opening(setup) => setup.offer.len(),
            _ => 0,
        });
        let offers: usize = offers.sum();
        let kept: usize = self.users.values().map(|user| user.offer_bytes).sum();
        assert_eq!(kept, offers, "requests");
    }
}
