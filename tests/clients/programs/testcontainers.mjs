// testcontainers for Node at a gate: each step says what came of it, as one JSON object on stdout. argv: granted
// device, another.
import { createRequire } from "node:module";

const require = createRequire(`${process.env.LIBRARIES}/package.json`);
const { GenericContainer, Network, Wait } = require("testcontainers");

const IMAGE = "ubuntu:24.04";
const [granted, ungranted] = process.argv.slice(2);

const container = (script = "echo ready; sleep 60") =>
  new GenericContainer(IMAGE).withCommand(["sh", "-c", script]).withWaitStrategy(Wait.forLogMessage("ready"));

// What `look` says of the running container, which is gone afterwards.
const within = async (made, look) => {
  const box = await made.start();
  try {
    return await look(box);
  } finally {
    await box.stop();
  }
};

const output = (box, ...command) => box.exec(command).then(({ output }) => output);

// The library has no words for device requests: they are set where it keeps the rest.
const asking = (request) => {
  const made = container();
  made.hostConfig.DeviceRequests = [request];
  return made;
};

const steps = {
  // Its log is followed until it says so.
  run: () => within(container(), () => "ready\n"),
  exec: () =>
    within(container(), async (box) => {
      const { output, exitCode } = await box.exec(["sh", "-c", "echo inside; exit 5"]);
      return [output, exitCode];
    }),
  environment: () =>
    within(container().withEnvironment({ A: "b" }), (box) => output(box, "sh", "-c", "echo $A")),
  files: () => {
    const made = container().withCopyContentToContainer([{ content: "data", target: "/tmp/file" }]);
    return within(made, (box) => output(box, "cat", "/tmp/file"));
  },
  network: async () => {
    const made = await new Network().start();
    try {
      const box = container().withNetwork(made).withNetworkAliases("alias");
      return await within(box, (box) => output(box, "sh", "-c", "ls -d /sys/class/net/eth0"));
    } finally {
      await made.stop();
    }
  },
  device: () =>
    within(asking({ Driver: "cdi", DeviceIDs: [granted] }), (box) =>
      output(box, "sh", "-c", "(cat </dev/nvidia0) 2>&1"),
    ),
  ungranted: () => within(asking({ Driver: "cdi", DeviceIDs: [ungranted] }), () => "started"),
  gpus: () => within(asking({ Count: -1, Capabilities: [["gpu"]] }), () => "started"),
  privileged: () => within(container().withPrivilegedMode(), () => "started"),
};

const found = {};
for (const [name, step] of Object.entries(steps)) {
  try {
    found[name] = await step();
  } catch (error) {
    found[name] = { error: error.constructor.name, said: String(error.message) };
  }
}
console.log(JSON.stringify(found));
process.exit(0);
