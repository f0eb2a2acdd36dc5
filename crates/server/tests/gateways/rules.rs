//! Lints the rules of the examples.

use std::process::Command;

use crate::proxies::caddy::CADDY;
use crate::proxies::envoy::ENVOY;
use crate::proxies::haproxy::HAPROXY;
use crate::proxies::nginx::NGINX;
use crate::proxies::traefik::TRAEFIK;

#[test]
fn the_linter_knows_every_attribute_of_the_gateways() {
    for recipe in [&NGINX, &TRAEFIK, &CADDY, &HAPROXY, &ENVOY] {
        let file = format!("../../examples/gateways/{}/rules.yaml", recipe.folder);
        let lint = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(["lint", &file])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .expect("the binary runs");
        let output = String::from_utf8_lossy(&lint.stdout) + String::from_utf8_lossy(&lint.stderr);
        // The pages explain how clients could choose their address. There is no other finding.
        assert!(lint.status.success() && output.contains("1 file, 1 note\n"), "{output}");
        assert!(output.contains("note[counted-by-address]"), "{output}");
    }
}
