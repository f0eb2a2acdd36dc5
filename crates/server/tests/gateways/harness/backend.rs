//! A real nginx behind a gateway. It decodes, merges and resolves paths, and says which handler a request reached.

use std::fs::{self, Permissions};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tollgate_testkit::tools::{Tool, free_port};

pub(crate) struct Backend {
    pub(crate) port: u16,
    nginx: Child,
    _folder: TempDir,
}

impl Backend {
    pub(crate) fn start() -> Backend {
        let (folder, port) = (tempfile::tempdir().expect("a folder"), free_port());
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("a folder of ours");
        let config = format!(
            "daemon off;\npid nginx.pid;\nerror_log stderr;\nevents {{}}\nhttp {{\n access_log off;\n \
             client_body_temp_path body;\n proxy_temp_path proxy;\n fastcgi_temp_path fastcgi;\n \
             uwsgi_temp_path uwsgi;\n scgi_temp_path scgi;\n default_type text/plain;\n \
             server {{\n  listen 127.0.0.1:{port};\n  \
             location = /search {{ return 200 \"reached: search\"; }}\n  \
             location = /admin {{ return 200 \"reached: admin\"; }}\n  \
             location / {{ return 200 \"reached: other\"; }}\n }}\n}}\n"
        );
        fs::write(folder.path().join("nginx.conf"), config).expect("a file can be written");
        let nginx = Tool::Nginx
            .command()
            .args(["-p", ".", "-e", "stderr", "-c", "nginx.conf"])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // So that workers end with it.
            .process_group(0)
            .spawn()
            .expect("nginx runs");
        let backend = Backend { port, nginx, _folder: folder };
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "the backend does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        backend
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        let group = format!("-{}", self.nginx.id());
        drop(Command::new("kill").args(["-s", "KILL", "--", &group]).stderr(Stdio::null()).status());
        drop(self.nginx.wait());
    }
}
