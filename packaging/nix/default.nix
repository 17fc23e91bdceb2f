# The program for Nix:
#
#   nix-build packaging/nix
#
# `features = [ "record" ]` builds the recorder alone, as for a dom0.
{
  pkgs ? import <nixpkgs> { },
  features ? [ "record" "report" ],
}:
pkgs.rustPlatform.buildRustPackage {
  pname = "uniprof";
  version = (pkgs.lib.importTOML ../../Cargo.toml).workspace.package.version;
  src = pkgs.lib.cleanSource ../..;
  cargoLock.lockFile = ../../Cargo.lock;
  buildNoDefaultFeatures = true;
  buildFeatures = features;
  # They record real programs and guests, which the sandbox of a build doesn't allow.
  doCheck = false;
  nativeBuildInputs = [ pkgs.installShellFiles ];
  postInstall = pkgs.lib.optionalString (builtins.elem "report" features) ''
    $out/bin/uniprof man man
    installManPage man/*.1
    for shell in bash fish zsh; do
      $out/bin/uniprof completions $shell >uniprof.$shell
    done
    installShellCompletion uniprof.{bash,fish,zsh}
  '';
  meta = {
    description = "Record/replay profiler for unikernels, Xen domains, QEMU guests and processes";
    homepage = "https://github.com/uniprof/uniprof";
    license = with pkgs.lib.licenses; [ mit asl20 cddl ];
    platforms = [ "x86_64-linux" "aarch64-linux" ];
    mainProgram = "uniprof";
  };
}
