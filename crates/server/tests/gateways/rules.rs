//! The rules of the examples, before the linter.

use std::process::Command;

use crate::caddy::CADDY;
use crate::envoy::ENVOY;
use crate::haproxy::HAPROXY;
use crate::nginx::NGINX;
use crate::traefik::TRAEFIK;

#[test]
fn the_linter_knows_every_attribute_of_the_gateways() {
    for recipe in [&NGINX, &TRAEFIK, &CADDY, &HAPROXY, &ENVOY] {
        let file = format!("../../examples/gateways/{}/rules.yaml", recipe.tool);
        let lint = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(["lint", &file])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .expect("the binary runs");
        let said = String::from_utf8_lossy(&lint.stdout) + String::from_utf8_lossy(&lint.stderr);
        // Who may choose its address is what the pages are about; there is nothing else to say.
        assert!(lint.status.success() && said.contains("1 file, 1 note\n"), "{said}");
        assert!(said.contains("note[counted-by-address]"), "{said}");
    }
}
