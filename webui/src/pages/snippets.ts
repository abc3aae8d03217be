export interface Snippet {
  title: string;
  note?: string;
  language: string;
  code: string;
}

const key = 'YOUR_API_KEY';

/** snippets are ready to be pasted: the address of the node and a model are filled in, the key is a placeholder. */
export function snippets(origin: string, model: string): Snippet[] {
  return [
    {
      title: 'curl',
      language: 'bash',
      code: `curl -N ${origin}/v1/chat/completions \\
  -H "Authorization: Bearer ${key}" \\
  -H "Content-Type: application/json" \\
  -d '{"model": "${model}", "stream": true, "messages": [{"role": "user", "content": "Hello"}]}'`,
    },
    {
      title: 'openai, Python',
      language: 'python',
      code: `from openai import OpenAI

client = OpenAI(base_url="${origin}/v1", api_key="${key}")
answer = client.chat.completions.create(
    model="${model}",
    messages=[{"role": "user", "content": "Hello"}],
)
print(answer.choices[0].message.content)`,
    },
    {
      title: 'openai, JavaScript',
      language: 'javascript',
      code: `import OpenAI from "openai";

const client = new OpenAI({ baseURL: "${origin}/v1", apiKey: "${key}" });
const answer = await client.chat.completions.create({
  model: "${model}",
  messages: [{ role: "user", content: "Hello" }],
});
console.log(answer.choices[0].message.content);`,
    },
    {
      title: 'Ollama clients',
      note: 'The ollama command and everything built for it take the address from the environment.',
      language: 'bash',
      code: `export OLLAMA_HOST=${origin}
ollama run ${model} "Hello"`,
    },
    {
      title: 'Open WebUI',
      note: 'From a container, localhost is the container: use an address of this machine in your network.',
      language: 'bash',
      code: `docker run -d -p 3000:8080 \\
  -e OPENAI_API_BASE_URL=${origin}/v1 \\
  -e OPENAI_API_KEY=${key} \\
  -v open-webui:/app/backend/data \\
  ghcr.io/open-webui/open-webui:main`,
    },
    {
      title: 'Continue',
      note: 'In config.yaml:',
      language: 'yaml',
      code: `models:
  - name: tandem
    provider: openai
    model: ${model}
    apiBase: ${origin}/v1
    apiKey: ${key}
    roles: [chat, edit]`,
    },
    {
      title: 'aider',
      language: 'bash',
      code: `export OPENAI_API_BASE=${origin}/v1
export OPENAI_API_KEY=${key}
aider --model openai/${model}`,
    },
    {
      title: 'Claude Code and other agents that speak Anthropic’s API',
      note: 'They send long prompts with tools; a model with a context of 32k or more and a template for tools is needed.',
      language: 'bash',
      code: `export ANTHROPIC_BASE_URL=${origin}
export ANTHROPIC_AUTH_TOKEN=${key}
export ANTHROPIC_MODEL=${model}
claude`,
    },
    {
      title: 'anthropic, Python',
      language: 'python',
      code: `from anthropic import Anthropic

client = Anthropic(base_url="${origin}", api_key="${key}")
answer = client.messages.create(
    model="${model}",
    max_tokens=500,
    messages=[{"role": "user", "content": "Hello"}],
)
print(answer.content[0].text)`,
    },
    {
      title: 'ollama, Python',
      language: 'python',
      code: `from ollama import Client

client = Client(host="${origin}", headers={"Authorization": "Bearer ${key}"})
answer = client.chat(model="${model}", messages=[{"role": "user", "content": "Hello"}])
print(answer.message.content)`,
    },
    {
      title: 'LangChain',
      language: 'python',
      code: `from langchain_openai import ChatOpenAI

llm = ChatOpenAI(base_url="${origin}/v1", api_key="${key}", model="${model}")
print(llm.invoke("Hello").content)`,
    },
  ];
}
