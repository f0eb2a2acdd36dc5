//! What the store answers to Plans and to follow-ups.

mod after_the_fact;
mod plans;
mod reservation_states;
