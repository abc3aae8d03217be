// What the tabs of one browser tell each other. Tabs share the database; this
// channel says that something in it changed, and which answers still run.

type Note =
  | { type: 'chat'; chatId: string } // messages of a chat changed
  | { type: 'list' } // chats came, went or were renamed
  | { type: 'ask'; messageId: string } // who receives this answer?
  | { type: 'here'; messageId: string };

export interface TabListener {
  chatChanged(chatId: string): void;
  listChanged(): void;
  /** Says whether this tab receives the answer of a message. */
  owns(messageId: string): boolean;
}

/** How long a tab may take to say that it still receives an answer. */
const answerMilliseconds = 400;

export class Tabs {
  private readonly channel: BroadcastChannel;
  private closed = false;
  private readonly waiting = new Map<string, () => void>();

  constructor(private readonly listener: TabListener, name = 'tandem') {
    this.channel = new BroadcastChannel(name);
    this.channel.onmessage = (event) => this.receive(event.data as Note);
  }

  chatChanged(chatId: string): void {
    this.send({ type: 'chat', chatId });
  }

  listChanged(): void {
    this.send({ type: 'list' });
  }

  /** elsewhere says whether another living tab receives the answer of a message. Ask about one message once at a time. */
  elsewhere(messageId: string): Promise<boolean> {
    return new Promise((resolve) => {
      const end = (found: boolean) => {
        clearTimeout(timer);
        this.waiting.delete(messageId);
        resolve(found);
      };
      const timer = setTimeout(() => end(false), answerMilliseconds);
      this.waiting.set(messageId, () => end(true));
      this.send({ type: 'ask', messageId });
    });
  }

  /** Nothing is sent or heard after close. */
  close(): void {
    this.closed = true;
    this.channel.close();
  }

  private send(note: Note): void {
    if (!this.closed) this.channel.postMessage(note);
  }

  private receive(note: Note): void {
    switch (note.type) {
      case 'chat':
        return this.listener.chatChanged(note.chatId);
      case 'list':
        return this.listener.listChanged();
      case 'ask':
        if (this.listener.owns(note.messageId)) this.send({ type: 'here', messageId: note.messageId });
        return;
      case 'here':
        this.waiting.get(note.messageId)?.();
    }
  }
}
