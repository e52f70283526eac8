import { setTimeout as wait } from 'node:timers/promises'
import { z } from 'zod'
import { EngineError, messageOf } from '../../core/index.ts'
import type { Completer, Completion, CompletionRequest } from './chat-completer.ts'
import { splitThinking } from './chat-dialogue.ts'

export interface EndpointOptions {
  /** Up to and with `/v1`. */
  readonly url: string
  readonly model: string
  readonly apiKey?: string
  /** Requests in flight at once. */
  readonly concurrency: number
  readonly fetch?: (url: string, init: RequestInit) => Promise<Response>
  readonly sleep?: (ms: number, signal: AbortSignal) => Promise<unknown>
  /** One request, headers and body, in milliseconds. */
  readonly ceilingMs?: number
  readonly tries?: number
}

const answer = z.object({
  choices: z
    .array(z.object({ message: z.object({ content: z.string().nullish() }), finish_reason: z.string().nullish() }))
    .min(1),
  usage: z.object({ prompt_tokens: z.number().nullish(), completion_tokens: z.number().nullish() }).nullish(),
})

/**
 * Any chat endpoint of the OpenAI form (vLLM, Ollama, llama.cpp, a hosted one). A server that refuses the JSON schema is
 * asked without it from then on: the answer is parsed and counted either way.
 */
export class ChatEndpoint implements Completer {
  #guided = true
  #running = 0
  readonly #waiting: (() => void)[] = []
  constructor(private readonly o: EndpointOptions) {}

  /** Whether answers are held to the schema by the server. */
  get guided(): boolean {
    return this.#guided
  }

  async complete(r: CompletionRequest, signal: AbortSignal): Promise<Completion> {
    while (this.#running >= this.o.concurrency) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve))
      signal.throwIfAborted()
    }
    this.#running++
    try {
      return await this.#complete(r, signal)
    } finally {
      this.#running--
      this.#waiting.shift()?.()
    }
  }

  async #complete(r: CompletionRequest, signal: AbortSignal): Promise<Completion> {
    const sleep = this.o.sleep ?? ((ms, s) => wait(ms, undefined, { signal: s }))
    const most = this.o.tries ?? 5
    let why = ''
    for (let n = 0; n < most; n++) {
      signal.throwIfAborted()
      let reply: Response
      let text: string
      const guided = this.#guided && r.schema !== undefined
      try {
        const both = AbortSignal.any([signal, AbortSignal.timeout(this.o.ceilingMs ?? 600_000)])
        reply = await (this.o.fetch ?? fetch)(`${this.o.url.replace(/\/+$/, '')}/chat/completions`, {
          method: 'POST',
          headers: {
            'Content-Type': 'application/json',
            ...(this.o.apiKey ? { Authorization: `Bearer ${this.o.apiKey}` } : {}),
          },
          body: JSON.stringify(this.#body(r, guided)),
          signal: both,
        })
        text = await reply.text()
      } catch (e) {
        signal.throwIfAborted()
        why = messageOf(e)
        await sleep(backOff(n), signal)
        continue
      }
      if (reply.ok) {
        const read = parsed(text)
        if (read) return read
        why = 'an answer that is no chat completion'
        continue
      }
      why = `HTTP ${reply.status}: ${text.slice(0, 200)}`
      if (
        guided &&
        (reply.status === 400 || reply.status === 422) &&
        /response_format|json_schema|schema/i.test(text)
      ) {
        this.#guided = false
        n--
        continue
      }
      if (reply.status !== 408 && reply.status !== 429 && reply.status < 500) break
      const asked = Number(reply.headers.get('retry-after'))
      await sleep(Number.isFinite(asked) && asked > 0 ? asked * 1000 : backOff(n), signal)
    }
    throw new EngineError(`the chat endpoint of ${this.o.model}: ${why}`)
  }

  #body(r: CompletionRequest, guided: boolean): object {
    return {
      model: this.o.model,
      messages: r.messages,
      max_tokens: r.maxTokens,
      temperature: r.greedy ? 0 : 1,
      seed: r.seed,
      ...(guided && r.schema
        ? { response_format: { type: 'json_schema', json_schema: { ...r.schema, strict: true } } }
        : {}),
    }
  }
}

function parsed(text: string): Completion | undefined {
  let json: unknown
  try {
    json = JSON.parse(text)
  } catch {
    return undefined
  }
  const a = answer.safeParse(json).data
  if (!a) return undefined
  const content = a.choices[0]!.message.content
  return {
    text: content ? splitThinking(content).answer : undefined,
    promptTokens: a.usage?.prompt_tokens ?? 0,
    completionTokens: a.usage?.completion_tokens ?? 0,
  }
}

const backOff = (n: number): number => Math.min(30_000, 500 * 2 ** n)
