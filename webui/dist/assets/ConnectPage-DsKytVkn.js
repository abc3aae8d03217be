import{T as e,l as t}from"./format-DobhyHNV.js";import{d as n,o as r,r as i,t as a}from"./Page-aVYWDUzk.js";import{o,r as s,s as c,t as l}from"./index-D1YvW1xK.js";import{t as u}from"./poll-D0qknzE8.js";var d=`YOUR_API_KEY`;function f(e,t){return[{title:`curl`,language:`bash`,code:`curl -N ${e}/v1/chat/completions \\
  -H "Authorization: Bearer ${d}" \\
  -H "Content-Type: application/json" \\
  -d '{"model": "${t}", "stream": true, "messages": [{"role": "user", "content": "Hello"}]}'`},{title:`openai, Python`,language:`python`,code:`from openai import OpenAI

client = OpenAI(base_url="${e}/v1", api_key="${d}")
answer = client.chat.completions.create(
    model="${t}",
    messages=[{"role": "user", "content": "Hello"}],
)
print(answer.choices[0].message.content)`},{title:`openai, JavaScript`,language:`javascript`,code:`import OpenAI from "openai";

const client = new OpenAI({ baseURL: "${e}/v1", apiKey: "${d}" });
const answer = await client.chat.completions.create({
  model: "${t}",
  messages: [{ role: "user", content: "Hello" }],
});
console.log(answer.choices[0].message.content);`},{title:`Ollama clients`,note:`The ollama command and everything built for it take the address from the environment.`,language:`bash`,code:`export OLLAMA_HOST=${e}
ollama run ${t} "Hello"`},{title:`Open WebUI`,note:`From a container, localhost is the container: use an address of this machine in your network.`,language:`bash`,code:`docker run -d -p 3000:8080 \\
  -e OPENAI_API_BASE_URL=${e}/v1 \\
  -e OPENAI_API_KEY=${d} \\
  -v open-webui:/app/backend/data \\
  ghcr.io/open-webui/open-webui:main`},{title:`Continue`,note:`In config.yaml:`,language:`yaml`,code:`models:
  - name: tandem
    provider: openai
    model: ${t}
    apiBase: ${e}/v1
    apiKey: ${d}
    roles: [chat, edit]`},{title:`aider`,language:`bash`,code:`export OPENAI_API_BASE=${e}/v1
export OPENAI_API_KEY=${d}
aider --model openai/${t}`},{title:`Claude Code and other agents that speak Anthropic’s API`,note:`They send long prompts with tools; a model with a context of 32k or more and a template for tools is needed.`,language:`bash`,code:`export ANTHROPIC_BASE_URL=${e}
export ANTHROPIC_AUTH_TOKEN=${d}
export ANTHROPIC_MODEL=${t}
claude`},{title:`anthropic, Python`,language:`python`,code:`from anthropic import Anthropic

client = Anthropic(base_url="${e}", api_key="${d}")
answer = client.messages.create(
    model="${t}",
    max_tokens=500,
    messages=[{"role": "user", "content": "Hello"}],
)
print(answer.content[0].text)`},{title:`ollama, Python`,language:`python`,code:`from ollama import Client

client = Client(host="${e}", headers={"Authorization": "Bearer ${d}"})
answer = client.chat(model="${t}", messages=[{"role": "user", "content": "Hello"}])
print(answer.message.content)`},{title:`LangChain`,language:`python`,code:`from langchain_openai import ChatOpenAI

llm = ChatOpenAI(base_url="${e}/v1", api_key="${d}", model="${t}")
print(llm.invoke("Hello").content)`}]}var p=3e4;function m(){n(),u(o,p);let d=e(``),m=e(``),g=c.value?.filter(s).map(({name:e})=>e)??[],_=d.value||g[0]||`MODEL`,v=h(location.origin,r.value.map(({member:e})=>e)),y=v.some(({url:e})=>e===m.value)?m.value:location.origin,b=/^https?:\/\/(localhost|127\.|\[::1\])/.test(y);return t(a,{title:`Connect`,children:[t(`p`,{children:[`Every node speaks the APIs of OpenAI, Ollama and Anthropic, and answers for all of them: any of their addresses will do. Where the node asks for an API key, put yours in the place of `,t(`code`,{children:`YOUR_API_KEY`}),`; where it asks for none, any word will do.`]}),b&&t(`p`,{class:`note`,children:[t(`code`,{children:y}),` is reached from this machine only. Start the node with `,t(`code`,{children:`--listen 0.0.0.0:9494`}),` to let others in; it then makes an API key, unless you give one with `,t(`code`,{children:`--api-key`}),`.`]}),t(`div`,{class:`row filters`,children:[v.length>1&&t(`label`,{class:`field`,children:[t(`span`,{children:`Address in the examples`}),t(`select`,{value:y,onChange:e=>m.value=e.currentTarget.value,children:v.map(({url:e,name:n})=>t(`option`,{value:e,children:n},e))})]}),g.length>1&&t(`label`,{class:`field`,children:[t(`span`,{children:`Model in the examples`}),t(`select`,{value:_,onChange:e=>d.value=e.currentTarget.value,children:g.map(e=>t(`option`,{children:e},e))})]})]}),f(y,_).map(({title:e,note:n,language:r,code:i})=>t(`section`,{"aria-label":e,children:[t(`h2`,{children:e}),n&&t(`p`,{children:n}),t(l,{code:i,language:r})]},e)),t(`p`,{class:`hint`,children:[i.value&&`Version ${i.value.node.version} · `,t(`a`,{href:`/ui/licenses.md`,target:`_blank`,rel:`noopener`,children:`Licences of the parts of this page`})]})]})}function h(e,t){let n=[{url:e,name:`${e} (this page)`}];for(let{name:e,addr:r,state:i}of t){let t=/^https?:\/\//.test(r)?r.replace(/\/$/,``):``;t!==``&&i!==`failed`&&i!==`left`&&!n.some(e=>e.url===t)&&n.push({url:t,name:`${t} (${e})`})}return n}export{m as ConnectPage};