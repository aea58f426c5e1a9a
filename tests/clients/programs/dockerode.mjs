// dockerode at a gate: each step says what came of it, as one JSON object on stdout. argv: granted device, another.
import { mkdtempSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { PassThrough } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";

const require = createRequire(`${process.env.LIBRARIES}/package.json`);
const Docker = require("dockerode");
const tar = createRequire(require.resolve("dockerode"))("tar-fs");

const IMAGE = "ubuntu:24.04";
const [granted, ungranted] = process.argv.slice(2);
const docker = new Docker();

const gathered = async (stream) => {
  const pieces = [];
  for await (const piece of stream) pieces.push(piece);
  return Buffer.concat(pieces).toString();
};

// Output of a container without a terminal comes in frames.
const unframed = async (stream) => {
  const out = new PassThrough();
  docker.modem.demuxStream(stream, out, out);
  stream.on("end", () => out.end());
  return gathered(out);
};

const run = async (command, host = {}, more = {}) => {
  const out = new PassThrough();
  const said = gathered(out);
  const [{ StatusCode }, box] = await docker.run(IMAGE, command, [out, out], { Tty: false, HostConfig: host, ...more });
  out.end();
  await box.remove();
  return [await said, StatusCode];
};

const started = async (command, more = {}) => {
  const box = await docker.createContainer({ Image: IMAGE, Cmd: command, ...more });
  await box.start();
  return box;
};

// A folder with one file, as a tar archive.
const packed = (name, text) => {
  const folder = mkdtempSync(`${process.env.HOME}/packed-`);
  writeFileSync(`${folder}/${name}`, text);
  return tar.pack(folder);
};

// The content of the only file of a tar archive.
const content = (archive) => archive.slice(512, 512 + parseInt(archive.slice(124, 136), 8));

const steps = {
  version: async () => {
    const said = await docker.version();
    return { api: said.ApiVersion, os: said.Os, ping: (await docker.ping()).toString() === "OK" };
  },
  run: async () => (await run(["echo", "hi"]))[0],
  exit_status: async () => (await run(["sh", "-c", "exit 7"]))[1],
  exec: async () => {
    const box = await started(["sleep", "60"]);
    const exec = await box.exec({ Cmd: ["sh", "-c", "echo inside; exit 5"], AttachStdout: true });
    const said = await unframed(await exec.start({}));
    return [said, (await exec.inspect()).ExitCode];
  },
  exec_stdin: async () => {
    const box = await started(["sleep", "60"]);
    const asked = { Cmd: ["sh", "-c", "cat; echo late"], AttachStdin: true, AttachStdout: true };
    const stream = await (await box.exec(asked)).start({ hijack: true, stdin: true });
    const said = unframed(stream);
    stream.end("fed\n");
    return said;
  },
  logs: async () => {
    const box = await started(["sh", "-c", "echo one; sleep 1; echo two"]);
    return unframed(await box.logs({ follow: true, stdout: true, stderr: true }));
  },
  events: async () => {
    const filters = JSON.stringify({ type: ["container"], label: ["seen=1"] });
    const stream = await docker.getEvents({ filters });
    const seen = [];
    const heard = new Promise((resolve) =>
      stream.on("data", (data) => {
        for (const line of data.toString().trim().split("\n")) seen.push(JSON.parse(line).Action);
        if (seen.includes("die")) resolve();
      }),
    );
    await started(["true"], { Labels: { seen: "1" } });
    await Promise.race([heard, sleep(20000, null, { ref: false })]);
    stream.destroy();
    return seen.filter((action) => ["create", "start", "die"].includes(action));
  },
  archive: async () => {
    const box = await docker.createContainer({ Image: IMAGE, Cmd: ["true"] });
    await box.putArchive(packed("file", "data"), { path: "/tmp" });
    const { name } = JSON.parse(
      Buffer.from((await box.infoArchive({ path: "/tmp/file" })).headers["x-docker-container-path-stat"], "base64"),
    );
    const got = await gathered(await box.getArchive({ path: "/tmp/file" }));
    return [name, content(got)];
  },
  network: async () => {
    const made = await docker.createNetwork({ Name: "made", Driver: "bridge", Labels: { a: "b" } });
    const box = await docker.createContainer({ Image: IMAGE, Cmd: ["true"] });
    await made.connect({ Container: box.id, EndpointConfig: { Aliases: ["alias"] } });
    const { Aliases } = (await box.inspect()).NetworkSettings.Networks.made;
    await made.disconnect({ Container: box.id });
    await made.remove();
    return Aliases;
  },
  commit: async () => {
    const box = await docker.createContainer({ Image: IMAGE, Cmd: ["true"] });
    const { Id } = await box.commit({ repo: "made", tag: "2", Cmd: ["echo", "committed"] });
    const said = (await run([], {}, { Image: Id, Cmd: undefined }))[0];
    await docker.getImage(Id).remove({ force: true });
    return said;
  },
  build: async () => {
    const context = packed("Dockerfile", `FROM ${IMAGE}\nRUN echo built >/f\n`);
    const stream = await docker.buildImage(context, { t: "made:1", networkmode: "none" });
    await new Promise((resolve, reject) =>
      docker.modem.followProgress(stream, (error, said) => (error ? reject(error) : resolve(said))),
    );
    const box = await docker.createContainer({ Image: "made:1", Cmd: ["true"] });
    const got = await gathered(await box.getArchive({ path: "/f" }));
    await box.remove();
    await docker.getImage("made:1").remove({ force: true });
    return content(got);
  },
  device: async () => {
    const asked = [{ Driver: "cdi", DeviceIDs: [granted] }];
    return (await run(["sh", "-c", "(cat </dev/nvidia0) 2>&1; true"], { DeviceRequests: asked }))[0];
  },
  ungranted: () => run(["true"], { DeviceRequests: [{ Driver: "cdi", DeviceIDs: [ungranted] }] }),
  gpus: () => run(["true"], { DeviceRequests: [{ Count: -1, Capabilities: [["gpu"]] }] }),
  gpus_by_cdi: () =>
    run(["true"], { DeviceRequests: [{ Driver: "cdi", DeviceIDs: [granted], Capabilities: [["gpu"]] }] }),
  raw_device: () => {
    const device = { PathOnHost: "/dev/nvidia0", PathInContainer: "/dev/nvidia0", CgroupPermissions: "rwm" };
    return run(["true"], { Devices: [device] });
  },
  privileged: () => run(["true"], { Privileged: true }),
};

const found = {};
for (const [name, step] of Object.entries(steps)) {
  try {
    found[name] = (await step()) ?? null;
  } catch (error) {
    found[name] = { error: error.constructor.name, said: String(error.message) };
  }
}
for (const { Id } of await docker.listContainers({ all: true })) await docker.getContainer(Id).remove({ force: true });
console.log(JSON.stringify(found));
process.exit(0);
