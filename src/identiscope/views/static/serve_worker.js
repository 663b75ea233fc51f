/** The viewer's worker, as a module that a server sends. */

import { listen } from "./worker.js";

listen();
